//! Why a call is not remembered. Counted, and shown by `jaxide.cache_info`.

/// Why a call is not remembered.
pub type Reason = &'static str;

// Arguments that have no key.
pub const CONCRETE_ARRAY: Reason = "concrete array";
pub const CAPTURED_CONSTANT: Reason = "traced constant";
pub const FOREIGN_TRACER: Reason = "foreign tracer";
pub const REF: Reason = "Ref or other type that is no array";
pub const CALLABLE: Reason = "callable without a stable identity";
pub const UNHASHABLE: Reason = "unhashable argument";
pub const UNKNOWN_OBJECT: Reason = "object of an unknown class";
pub const NOT_A_NUMBER: Reason = "function that may compare a NaN with another one";
pub const USERS_CLASS: Reason = "class of the user's that may have methods";
pub const USERS_PRIMITIVE: Reason = "primitive that is not jax's";
pub const TANGENT: Reason = "tangent that was captured or is zero";
pub const TWO_TRACERS: Reason = "two tracers of one value";
/// A literal whose value the user has too, and may write to.
pub const LITERAL_OF_OTHERS: Reason = "literal that may be written to";
pub const LARGE_VALUE: Reason = "value too large for a key";
/// A traced value where only what is fixed is expected.
pub const TRACED_PARAM: Reason = "traced value within a program";

// Functions among them.
/// What jax keeps of it may be of other values that it reads.
pub const SEEN: Reason = "function that jax may have traced before";
pub const ORDERS: Reason = "function that may go by the order of a set";
pub const CHANGES: Reason = "function that changes a list or dict in place";
/// What the text of an array says depends on numpy's print options.
pub const WRITES: Reason = "function that may make a text of an array";
/// Nobody has looked through the code yet.
pub const UNREAD_CODE: Reason = "function that was not looked through";

// Where the call happens.
pub const DROPS_DEAD_CODE: Reason = "trace that drops dead code";
pub const FOLDS_EAGERLY: Reason = "eager constant folding";
pub const LEAK_CHECK: Reason = "leak checking";
pub const CHANGED_JAX: Reason = "jax was changed in a way that may affect any call";
pub const UNKNOWN_JAX: Reason = "jax that is not known well enough";
pub const NUMPY_TELLS: Reason = "numpy tells somebody of errors in numbers";
pub const NO_TRACING: Reason = "tracing is forbidden";

// Programs among them.
pub const CONSTANTS: Reason = "program with constants or effects";
pub const NOT_ALONE: Reason = "program that shares variables with another";
pub const OF_THE_CALL: Reason = "program with the lines of the call";

// What the call appended.
pub const INPUT_EFFECT: Reason = "effect on an input";
pub const HIGH_TYPE: Reason = "high-level type";
pub const OTHER_SCOPE: Reason = "name scope that is not below the caller's";
pub const NEW_OBJECTS: Reason = "new objects at each call";
pub const STRUCTURED_RESIDUALS: Reason = "structured residuals";
pub const ORDER_OF_CONSTANTS: Reason = "constant that was used without an equation";
pub const CAPTURED_TWICE: Reason = "residual that was captured before and is used twice";
pub const KEPT_ELSEWHERE: Reason = "tangent that is kept elsewhere";
pub const OTHER_SOURCE: Reason = "equation with a source of its own";
pub const FORGOTTEN: Reason = "program that was forgotten";
pub const OVERFLOW: Reason = "literal that overflowed";

// What it returned.
pub const UNKNOWN_RESULT: Reason = "result of an unknown class";
pub const OUTER_VALUE: Reason = "value of the enclosing trace";

// What happened while it ran, and what is known of other calls.
pub const JIT_DISABLED: Reason = "disabled jit of a user's function";
pub const CAPTURES: Reason = "user's function that refers to traced values";
pub const GIVEN_TRACEBACK: Reason = "rule within a program that is evaluated";
pub const READ: Reason = "function that looks into a concrete array";
pub const WARNED: Reason = "function that warned";
pub const KEPT: Reason = "new program that may be used again";
pub const REACHES_CHANGE: Reason = "function that reaches what was changed of jax";
/// Says nothing about the next call, so it is not kept.
pub const CHANGED_MEANWHILE: Reason = "call during which jax changed";
pub const AMBIGUOUS: Reason = "program that other calls have beside others";
pub const BARRED: Reason = "barred by audit";
