//! Signatures of calls: words that two calls have in common exactly where they are the same call.

use smallvec::SmallVec;

/// What the words that follow describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Tag {
    /// A traced value: the position of the first equal one, then the type's identity.
    Traced = 1,
    /// An object that exists once: its identity.
    Identity,
    /// An integer.
    Int,
    /// The bits of a float.
    Float,
    /// The bits of the real and of the imaginary part.
    Complex,
    /// A text: its length, then its bytes.
    Text,
    /// Bytes: their length, then themselves.
    Bytes,
    /// A literal: whether a tracer has it, its type's and class's identity, then its bytes.
    Literal,
    /// A scalar of an array library: its class, then its bytes.
    Scalar,
    /// A sequence: its length, its class, then its items.
    Sequence,
    /// A dict: its length, then its keys and values in order.
    Dict,
    /// A slice: three values follow.
    Slice,
    /// An object of a class with fields: its class, then the fields.
    Fields,
    /// What is done to a Ref: the place of its variable, the kind.
    Effect,
    /// A named argument: the name and the value follow.
    Keyword,
    /// What cotangents are added to: the position of the first mention, its type; the sum follows.
    Accumulator,
    /// A value under a transformation: the position of the same object among the traced ones; where
    /// it is new its level and its parts follow, as traced values.
    Transformed,
    /// A value of an enclosing trace: the position of the same object among those, its type.
    Enclosing,
    /// The value of an enclosing trace before this is a concrete array: whether it is bound to devices,
    /// which follow.
    Concrete,
    /// An array that may change: how many dimensions it has, the size of each; its format and its bytes
    /// follow.
    Array,
    /// A transformation: its kind; what its rules depend on follows.
    Transformation,
    /// A function: how much it reads, its code's identity, and its own where that counts; then its
    /// name, its defaults, its attributes, and what it reads.
    Function,
    /// A function that the one that follows is part of, by its position among those.
    Within,
    /// A program: whether it is closed, and the number of what it says.
    Program,
    /// An equation: how many operands it has, its primitive; then the rest of it.
    Equation,
    /// A variable of a program, by its place there; where it is defined its type follows.
    Variable,
}

/// The words of one call. Writing is injective: tags and lengths come before content.
#[derive(Clone, Debug, Default)]
pub struct Signature {
    words: SmallVec<[u64; 32]>,
}

impl Signature {
    /// Starts a signature in a configuration, named by a number.
    pub fn new(configuration: u64) -> Self {
        let mut words = SmallVec::new();
        words.push(configuration);
        Self { words }
    }

    /// The configuration.
    pub fn configuration(&self) -> u64 {
        self.words.first().copied().unwrap_or_default()
    }

    /// Writes a tag with a number below 2^56: a length or a position.
    #[inline]
    pub fn tag(&mut self, tag: Tag, number: usize) {
        self.words.push((tag as u64) << 56 | number as u64);
    }

    /// Writes a tag with a number, and a word.
    #[inline]
    pub fn pair(&mut self, tag: Tag, number: usize, word: u64) {
        self.words.push((tag as u64) << 56 | number as u64);
        self.words.push(word);
    }

    /// Writes a word.
    #[inline]
    pub fn word(&mut self, word: u64) {
        self.words.push(word);
    }

    /// Writes bytes, with their number as part of the tag.
    pub fn bytes(&mut self, tag: Tag, bytes: &[u8]) {
        self.tag(tag, bytes.len());
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.words.push(u64::from_le_bytes(word));
        }
    }

    /// Writes what another signature consists of, as it is.
    pub fn extend(&mut self, words: &[u64]) {
        self.words.extend_from_slice(words);
    }

    /// The words.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}
