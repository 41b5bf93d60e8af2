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

/// A word that means something in this process only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// The address of an object.
    Object,
    /// The number of a program.
    Program,
    /// The address of a traceback that stands for all that are equal.
    Traceback,
    /// The version of the class that is named next.
    Version,
    /// The address of how the class that is named next is registered; zero where it is not.
    Registration,
}

/// The words of one call. Writing is injective: tags and lengths come before content.
#[derive(Clone, Debug, Default)]
pub struct Signature {
    words: SmallVec<[u64; 32]>,
    /// The positions of local words, where somebody asks for them.
    locals: Option<Vec<(usize, Local)>>,
}

impl Signature {
    /// Starts a signature in a configuration, named by a number.
    pub fn new(configuration: u64) -> Self {
        let mut words = SmallVec::new();
        words.push(configuration);
        Self { words, locals: None }
    }

    /// As this, noting where local words are written from now on.
    #[must_use]
    pub fn noting_locals(self) -> Self {
        Self { locals: Some(Vec::new()), ..self }
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

    /// Writes a tag with a number, and the address of an object; zero where an item is left out.
    #[inline]
    pub fn address(&mut self, tag: Tag, number: usize, address: u64) {
        self.tag(tag, number);
        self.local(Local::Object, address);
    }

    /// Writes a word that means something in this process only.
    #[inline]
    pub fn local(&mut self, local: Local, word: u64) {
        if let Some(locals) = &mut self.locals {
            locals.push((self.words.len(), local));
        }
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

    /// Writes what another signature, which notes its local words, consists of.
    pub fn extend(&mut self, other: &Self) {
        if let Some(locals) = &mut self.locals {
            let first = self.words.len();
            let of_other = other.locals.iter().flatten();
            locals.extend(of_other.map(|&(position, local)| (first + position, local)));
        }
        self.words.extend_from_slice(&other.words);
    }

    /// As this, with other local words than those that were noted.
    #[must_use]
    pub fn with_locals(&self, mut replaced: impl FnMut(Local, u64) -> u64) -> Self {
        let mut words = self.words.clone();
        for &(position, local) in self.locals.iter().flatten() {
            words[position] = replaced(local, words[position]);
        }
        Self { words, locals: None }
    }

    /// The words.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The positions of local words, in ascending order; None where they were not noted.
    pub fn locals(&self) -> Option<&[(usize, Local)]> {
        self.locals.as_deref()
    }
}
