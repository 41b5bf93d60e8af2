//! Names of variables: letters, in the order in which a text mentions them.

use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::{PackedOption, ReservedValue};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::Var;

/// Which variable one is, among those of several programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// Nothing but its program has it.
    Own,
    /// It is also known by a number, under which other programs may have it.
    Shared(usize),
    /// It stands for a result that nobody wants.
    Dropped,
}

/// A name: the place of its letters in the order of all such, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(u32);

impl Name {
    /// The name of what nobody refers to.
    pub(super) const DROPPED: Self = Self(u32::MAX - 1);

    /// Its text, as digits to the base 26 in letters.
    pub(super) fn spell(self, room: &mut [u8; 8]) -> &str {
        if self == Self::DROPPED {
            return "_";
        }
        let (mut rest, mut at) = (self.0, room.len());
        loop {
            at -= 1;
            room[at] = b'a' + (rest % 26) as u8;
            rest /= 26;
            if rest == 0 {
                break;
            }
        }
        std::str::from_utf8(&room[at..]).unwrap_or_default()
    }
}

impl ReservedValue for Name {
    fn reserved_value() -> Self {
        Self(u32::MAX)
    }

    fn is_reserved_value(&self) -> bool {
        self.0 == u32::MAX
    }
}

type OwnNames = SecondaryMap<Var, PackedOption<Name>>;

/// The names that variables have so far.
#[derive(Default)]
pub(super) struct Names {
    /// By program: equations mostly mention variables of the one that they are in.
    own: FxHashMap<usize, OwnNames>,
    shared: FxHashMap<usize, Name>,
    /// Names of programs, which no variable gets.
    taken: FxHashSet<Box<str>>,
    next: u32,
}

impl Names {
    /// Reserves the name of a program.
    pub(super) fn take(&mut self, name: &str) {
        self.taken.insert(name.into());
    }

    /// The name of a variable, where it has one.
    pub(super) fn entry(&self, program: usize, var: Var, identity: Identity) -> Option<Name> {
        match identity {
            Identity::Own => self.own.get(&program)?[var].expand(),
            Identity::Shared(number) => self.shared.get(&number).copied(),
            Identity::Dropped => Some(Name::DROPPED),
        }
    }

    /// Names a variable, unless it has a name.
    pub(super) fn set(&mut self, program: usize, var: Var, identity: Identity, name: Name) {
        match identity {
            Identity::Own => {
                let known = &mut self.own.entry(program).or_default()[var];
                if known.is_none() {
                    *known = name.into();
                }
            }
            Identity::Shared(number) => _ = self.shared.entry(number).or_insert(name),
            Identity::Dropped => {}
        }
    }

    /// Whether a variable has a name.
    pub(super) fn has(&self, program: usize, var: Var, identity: Identity) -> bool {
        self.entry(program, var, identity).is_some()
    }

    /// The name of a variable; the next one where it has none yet.
    pub(super) fn of(&mut self, program: usize, var: Var, identity: Identity) -> Name {
        self.within(program, 0).of(var, identity)
    }

    /// The names of one program, which has about as many variables.
    pub(super) fn within(&mut self, program: usize, num_vars: usize) -> NamesWithin<'_> {
        let Self { own, shared, taken, next } = self;
        let own = own.entry(program).or_insert_with(|| SecondaryMap::with_capacity(num_vars));
        NamesWithin { own, shared, taken, next }
    }
}

/// The names that variables of one program have so far.
pub(super) struct NamesWithin<'a> {
    own: &'a mut OwnNames,
    shared: &'a mut FxHashMap<usize, Name>,
    taken: &'a FxHashSet<Box<str>>,
    next: &'a mut u32,
}

impl NamesWithin<'_> {
    /// The name of a variable; the next one where it has none yet.
    #[inline]
    pub(super) fn of(&mut self, var: Var, identity: Identity) -> Name {
        let Self { own, shared, taken, next } = self;
        let mut new = || {
            let mut room = [0; 8];
            let mut name = Name(**next);
            while !taken.is_empty() && taken.contains(name.spell(&mut room)) {
                name = Name(name.0 + 1);
            }
            **next = name.0 + 1;
            name
        };
        match identity {
            Identity::Own => {
                if let Some(known) = own[var].expand() {
                    return known;
                }
                let name = new();
                own[var] = name.into();
                name
            }
            Identity::Shared(number) => *shared.entry(number).or_insert_with(new),
            Identity::Dropped => Name::DROPPED,
        }
    }
}
