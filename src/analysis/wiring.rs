//! How the operands and results of an equation meet the inputs and outputs of programs that it runs.

use std::ops::Range;

use crate::ir::{Eqn, ParamValue, Params, Program};

use super::nest::Nest;
use super::values::{int, items};

/// A program that an equation runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// The place of the program.
    pub place: usize,
    /// The operand that each input is, or starts as.
    pub inputs: Vec<Option<usize>>,
    /// The result that each output is.
    pub results: Vec<Option<usize>>,
    /// Inputs that are Refs, and the results that are what they hold in the end.
    pub finals: Vec<(usize, usize)>,
    /// Outputs of the first body that are inputs of this one the next time.
    pub carried: Vec<(usize, usize)>,
    /// Inputs that are slices of their operands.
    pub slices: Range<usize>,
    /// Outputs that are slices of their results.
    pub stacked: Range<usize>,
}

/// The programs that an equation runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wiring {
    /// The programs: branches, or a loop's body and its condition.
    pub bodies: Vec<Body>,
    /// The operand that says which of the bodies runs.
    pub choice: Option<usize>,
    /// The body whose output says whether the first one runs again.
    pub condition: Option<usize>,
    /// Whether the bodies run again and again.
    pub is_loop: bool,
    /// Whether they may not run at all, so that results are what is carried at first.
    pub may_skip: bool,
}

/// The param with the program that an equation of a primitive calls, operand by operand.
pub(super) fn callee<'p>(primitive: &str, params: &'p Params) -> Option<&'p ParamValue> {
    match primitive {
        "jit" | "remat2" | "checkpoint" | "shard_map" | "jaxpr_call" => params.get("jaxpr"),
        "call"
        | "closed_call"
        | "core_call"
        | "custom_jvp_call"
        | "custom_vjp_call"
        | "custom_jvp_call_jaxpr"
        | "linear_call"
        | "composite"
        | "compute_on"
        | "eval_jaxpr"
        | "custom_vmap_call" => {
            ["call_jaxpr", "call", "callee", "jaxpr"].into_iter().find_map(|name| params.get(name))
        }
        "remat_opt" => params.get("fwd_jaxpr"),
        "xla_pmap" => params.get("call_jaxpr"),
        _ => None,
    }
}

/// The part of a custom linear solution that runs.
pub(super) fn solver(params: &Params) -> Option<&ParamValue> {
    field(params.get("jaxprs")?, "solve")
}

fn field<'p>(value: &'p ParamValue, name: &str) -> Option<&'p ParamValue> {
    let ParamValue::Named { fields, .. } = value else { return None };
    fields.iter().find(|(own, _)| &**own == name).map(|(_, value)| value)
}

fn count(params: &Params, name: &str) -> Option<usize> {
    usize::try_from(int(params, name)?).ok()
}

/// How many of a scan's operands are constants, and how many are carried: numbers, or the leaves of
/// trees (jax 0.11 on).
fn consts_and_carries(params: &Params) -> Option<(usize, usize)> {
    let Some(ParamValue::Named { fields, .. }) = params.get("ft_in") else {
        return Some((count(params, "num_consts")?, count(params, "num_carry")?));
    };
    let [(_, parts)] = &**fields else { return None };
    let [consts, carries, _] = items(parts)? else { return None };
    Some((leaves(consts)?, leaves(carries)?))
}

/// How many leaves a tree of jax's (`jax._src.flattree`) has.
fn leaves(tree: &ParamValue) -> Option<usize> {
    let ParamValue::Named { type_name, fields } = tree else { return None };
    let all = |name: &str| items(field(tree, name)?)?.iter().map(leaves).sum();
    match type_name.rsplit('.').next()? {
        "FTTuple" => all("elts"),
        "FTDict" => all("_vals"),
        "FTPyTree" => Some(items(field(tree, "xs")?)?.len()),
        "FTSingleton" => Some(1),
        "FTStatic" => Some(0),
        "FTFiltered" => {
            // Each of what would be a leaf says whether it is one.
            let mut count = 0;
            fields[..].first()?.1.walk(&mut |value| {
                count += usize::from(field(value, "is_right") == Some(&ParamValue::Bool(true)));
            });
            Some(count)
        }
        _ => None,
    }
}

struct Reader<'n> {
    nest: &'n Nest,
    program: &'n Program,
    operands: usize,
    results: usize,
}

impl Reader<'_> {
    fn place(&self, value: &ParamValue) -> Option<usize> {
        let ParamValue::Program(id) = value else { return None };
        self.nest.place(self.program, *id)
    }

    /// A program whose inputs are operands, one after another, and so its outputs.
    fn body(&self, value: &ParamValue, inputs: impl Iterator<Item = usize>) -> Option<Body> {
        let place = self.place(value)?;
        let program = self.nest.program(place);
        let inputs: Vec<_> = inputs.map(Some).collect();
        let is_whole = inputs.len() == program.invars().len()
            && program.outvars().len() == self.results
            && inputs.iter().flatten().all(|&operand| operand < self.operands);
        is_whole.then(|| Body {
            place,
            inputs,
            results: (0..self.results).map(Some).collect(),
            ..Body::default()
        })
    }

    fn scan(&self, params: &Params) -> Option<Wiring> {
        let mut body = self.body(params.get("jaxpr")?, 0..self.operands)?;
        let (consts, carries) = consts_and_carries(params)?;
        if consts.checked_add(carries)? > self.operands || carries > self.results {
            return None;
        }
        body.carried = (0..carries).map(|carry| (carry, consts + carry)).collect();
        body.slices = consts + carries..self.operands;
        body.stacked = carries..self.results;
        let may_skip = int(params, "length").is_none_or(|length| length < 1);
        Some(Wiring { bodies: vec![body], is_loop: true, may_skip, ..Wiring::default() })
    }

    fn while_loop(&self, params: &Params) -> Option<Wiring> {
        let (of_condition, of_body) =
            (count(params, "cond_nconsts")?, count(params, "body_nconsts")?);
        let carries = of_condition.checked_add(of_body)?;
        let mut body = self.body(params.get("body_jaxpr")?, of_condition..self.operands)?;
        body.carried = (0..self.results).map(|carry| (carry, of_body + carry)).collect();
        let place = self.place(params.get("cond_jaxpr")?)?;
        let condition = Body {
            place,
            inputs: (0..of_condition).chain(carries..self.operands).map(Some).collect(),
            results: vec![None; self.nest.program(place).outvars().len()],
            carried: (0..self.results).map(|carry| (carry, of_condition + carry)).collect(),
            ..Body::default()
        };
        let is_whole = condition.inputs.len() == self.nest.program(place).invars().len()
            && !condition.results.is_empty()
            && carries + self.results == self.operands;
        let bodies = vec![body, condition];
        let condition = Some(1);
        is_whole.then_some(Wiring {
            bodies,
            condition,
            is_loop: true,
            may_skip: true,
            choice: None,
        })
    }

    fn branches(&self, params: &Params) -> Option<Wiring> {
        let (ParamValue::Tuple(branches) | ParamValue::List(branches)) = params.get("branches")?
        else {
            return None;
        };
        let bodies: Option<Vec<_>> =
            branches.iter().map(|branch| self.body(branch, 1..self.operands)).collect();
        Some(Wiring { bodies: bodies?, choice: Some(0), ..Wiring::default() })
    }

    fn run_state(&self, params: &Params) -> Option<Wiring> {
        let place = self.place(params.get("jaxpr")?)?;
        let inputs = self.nest.program(place).invars().len();
        if inputs != self.operands || inputs != self.results {
            return None;
        }
        let body = Body {
            place,
            inputs: (0..inputs).map(Some).collect(),
            results: vec![None; self.nest.program(place).outvars().len()],
            finals: (0..inputs).map(|input| (input, input)).collect(),
            ..Body::default()
        };
        Some(Wiring { bodies: vec![body], ..Wiring::default() })
    }

    fn linear_solution(&self, params: &Params) -> Option<Wiring> {
        let lengths = params.get("const_lengths")?;
        let length = |name: &str| match field(lengths, name)? {
            ParamValue::Int(length) => usize::try_from(*length).ok(),
            _ => None,
        };
        let before = length("matvec")?.checked_add(length("vecmat")?)?;
        let consts = length("solve")?;
        let rest = before.checked_add(consts)?.checked_add(length("transpose_solve")?)?;
        let inputs = (before..before + consts).chain(rest..self.operands);
        Some(Wiring { bodies: vec![self.body(solver(params)?, inputs)?], ..Wiring::default() })
    }
}

/// How an equation runs programs. None where it runs none, or in a way that is not known, as a
/// kernel does: then everything that it does depends on all of its operands.
pub fn wiring(nest: &Nest, place: usize, eqn: Eqn) -> Option<Wiring> {
    let program = nest.program(place);
    let data = program.eqn(eqn);
    let primitive = program.primitive(data.primitive).operation();
    let params = program.params(data.params);
    let operands = program.eqn_invars(eqn).len();
    let reader = Reader { nest, program, operands, results: data.outvars().len() };
    match primitive {
        "scan" => reader.scan(params),
        "while" => reader.while_loop(params),
        "cond" => reader.branches(params),
        "run_state" => reader.run_state(params),
        "custom_linear_solve" => reader.linear_solution(params),
        _ => {
            let body = reader.body(callee(primitive, params)?, 0..operands)?;
            Some(Wiring { bodies: vec![body], ..Wiring::default() })
        }
    }
}
