//! Random programs, built step by step as a trace does, and a model of what removal leaves of them.

use std::collections::BTreeSet;

use jaxide::ir::{
    Atom, ConstId, ContextId, DeadCode, DebugInfo, Def, EffectsId, Eqn, LiteralId, ParamValue,
    Params, ParamsId, Place, PrimitiveId, Program, SourceId, SubprogramId, TypeId, Var, VarData,
    ViolationKind, testing::UncheckedEdit, verify,
};
use jaxide::passes::{Options, Plain, optimize};
use proptest::{collection, prelude::*, sample::Index};

use crate::common::{
    Fixture, effect, enclosing, f32_array, identity_program, names, object, params,
};

/// One action of an embedding. An index picks among the atoms or handles there are by then.
#[derive(Clone, Debug)]
enum Step {
    Invar,
    Constvar,
    Literal,
    Eqn { operands: Vec<Index>, outputs: usize, effect: Effect, nested: bool },
    Retain(Index),
    Release(Index),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Global,
    /// On the first operand that is a variable.
    OnOperand,
}

fn any_step() -> impl Strategy<Value = Step> {
    let effect = prop_oneof![
        6 => Just(Effect::None),
        1 => Just(Effect::Global),
        1 => Just(Effect::OnOperand),
    ];
    let eqn = (collection::vec(any::<Index>(), 0..4), 0..4_usize, effect, any::<bool>());
    prop_oneof![
        1 => Just(Step::Invar),
        2 => Just(Step::Constvar),
        1 => Just(Step::Literal),
        8 => eqn.prop_map(|(operands, outputs, effect, nested)| {
            Step::Eqn { operands, outputs, effect, nested }
        }),
        1 => any::<Index>().prop_map(Step::Retain),
        8 => any::<Index>().prop_map(Step::Release),
    ]
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    collection::vec(any_step(), 0..80)
}

fn any_mode() -> impl Strategy<Value = DeadCode> {
    prop_oneof![Just(DeadCode::Keep), Just(DeadCode::RemoveUnreferenced)]
}

/// An equation as the model knows it.
#[derive(Clone, Debug)]
struct ModelEqn {
    operands: Vec<Var>,
    outputs: Vec<Var>,
    has_effects: bool,
}

/// What is alive, worked out from nothing but the handles: an equation is if it has an effect, or a
/// handle or a live equation refers to an output; a constant, if a handle or a live equation does.
#[derive(Clone, Debug, Default)]
struct Model {
    /// How many handles each variable has.
    handles: Vec<usize>,
    eqns: Vec<ModelEqn>,
    constvars: Vec<(Var, ConstId)>,
}

impl Model {
    fn referenced(&self, dce: DeadCode) -> (Vec<usize>, BTreeSet<Var>) {
        let handles = self.handles.iter().enumerate().filter(|(_, handles)| **handles > 0);
        let mut referenced: BTreeSet<_> = handles.map(|(index, _)| var(index)).collect();
        let mut live = Vec::new();
        for (index, eqn) in self.eqns.iter().enumerate().rev() {
            let is_live = dce == DeadCode::Keep
                || eqn.has_effects
                || eqn.outputs.iter().any(|output| referenced.contains(output));
            if is_live {
                referenced.extend(&eqn.operands);
                live.push(index);
            }
        }
        live.reverse();
        (live, referenced)
    }

    fn live_eqns(&self, dce: DeadCode) -> Vec<usize> {
        self.referenced(dce).0
    }

    fn live_constvars(&self, dce: DeadCode) -> Vec<(Var, ConstId)> {
        let (_, referenced) = self.referenced(dce);
        self.constvars.iter().copied().filter(|(var, _)| referenced.contains(var)).collect()
    }

    fn held(&self) -> Vec<Var> {
        let held = self.handles.iter().enumerate().filter(|(_, handles)| **handles > 0);
        held.map(|(index, _)| var(index)).collect()
    }
}

fn var(index: usize) -> Var {
    Var::from_u32(u32::try_from(index).unwrap())
}

/// A builder and the model, side by side.
struct Session {
    dce: DeadCode,
    fixture: Fixture,
    literals: Vec<Atom>,
    model: Model,
    /// Which equation of the model each row is.
    model_of_eqn: Vec<usize>,
}

impl Session {
    /// Starts with one of everything, so that there is something to use.
    fn new(dce: DeadCode) -> Self {
        let mut session = Self {
            dce,
            fixture: Fixture::new(dce),
            literals: Vec::new(),
            model: Model::default(),
            model_of_eqn: Vec::new(),
        };
        session.take(&Step::Invar);
        session.take(&Step::Constvar);
        session.take(&Step::Literal);
        let x = Atom::var(var(0));
        session.eqn(&[x], 1, Effect::None, false);
        session
    }

    fn atoms(&self) -> Vec<Atom> {
        let held = self.model.held().into_iter().map(Atom::var);
        held.chain(self.literals.iter().copied()).collect()
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Invar => {
                self.fixture.invar();
                self.model.handles.push(1);
            }
            Step::Constvar => {
                let value = u32::try_from(self.model.constvars.len()).unwrap();
                let var = self.fixture.constvar(value);
                self.model.handles.push(1);
                self.model.constvars.push((var, ConstId::from_u32(value)));
            }
            Step::Literal => {
                let scalar = self.fixture.builder.ty(f32_array(&[]));
                let number = 100 + u32::try_from(self.literals.len()).unwrap();
                let literal = self.fixture.builder.literal(scalar, object(number)).unwrap();
                self.literals.push(literal.into());
            }
            Step::Eqn { operands, outputs, effect, nested } => {
                let atoms = self.atoms();
                let operands: Vec<_> = operands.iter().map(|index| *index.get(&atoms)).collect();
                self.eqn(&operands, *outputs, *effect, *nested);
            }
            Step::Retain(index) => {
                let held = self.model.held();
                if !held.is_empty() {
                    let var = *index.get(&held);
                    self.fixture.builder.retain(var);
                    self.model.handles[var.as_u32() as usize] += 1;
                }
            }
            Step::Release(index) => {
                let held = self.model.held();
                if !held.is_empty() {
                    self.release(*index.get(&held));
                }
            }
        }
    }

    fn eqn(&mut self, operands: &[Atom], outputs: usize, effect_kind: Effect, nested: bool) {
        let Fixture { builder, ty, source, context, single, multiple } = &mut self.fixture;
        let vars: Vec<_> = operands.iter().filter_map(|atom| atom.as_var()).collect();
        let effects = match (effect_kind, vars.first()) {
            (Effect::None, _) | (Effect::OnOperand, None) => EffectsId::NONE,
            (Effect::Global, _) => builder.effects(&[effect("io", None)]),
            (Effect::OnOperand, Some(&var)) => {
                builder.effects(&[effect("read", Some(var)), effect("io", None)])
            }
        };
        let params = if nested {
            let body = builder.subprogram(object(7));
            builder.resolve_subprogram(body, std::sync::Arc::new(identity_program()));
            builder.params(params(vec![("jaxpr", ParamValue::Program(body))]))
        } else {
            builder.params(Params::default())
        };
        let primitive = if outputs == 1 { *single } else { *multiple };
        let types = vec![*ty; outputs];
        let eqn =
            builder.eqn(primitive, params, operands, &types, effects, *source, *context).unwrap();
        let outputs: Vec<_> = builder.eqn_data(eqn).outvars().collect();
        for &output in &outputs {
            builder.retain(output);
            self.model.handles.push(1);
        }
        self.model_of_eqn.push(self.model.eqns.len());
        let has_effects = effects != EffectsId::NONE;
        self.model.eqns.push(ModelEqn { operands: vars, outputs, has_effects });
    }

    /// Releases a handle, and compares what goes with what the model says.
    fn release(&mut self, var: Var) {
        let before = self.model.live_constvars(self.dce);
        self.model.handles[var.as_u32() as usize] -= 1;
        let after = self.model.live_constvars(self.dce);
        let mut expected: Vec<_> = before
            .into_iter()
            .filter(|constvar| !after.contains(constvar))
            .map(|(_, value)| value)
            .collect();
        let mut dropped = self.fixture.release(var);
        expected.sort_unstable();
        dropped.sort_unstable();
        assert_eq!(dropped, expected);
    }

    fn check(&self) {
        let live: Vec<_> = self
            .fixture
            .builder
            .live_eqns()
            .map(|eqn| self.model_of_eqn[eqn.as_u32() as usize])
            .collect();
        assert_eq!(live, self.model.live_eqns(self.dce));
        assert_eq!(self.fixture.builder.num_eqns(), live.len());
        let constvars: Vec<_> = self.fixture.builder.constvars().collect();
        assert_eq!(constvars, self.model.live_constvars(self.dce));
    }

    /// Appends rows of every kind, so that there is something to break.
    fn completed(mut self) -> Self {
        self.take(&Step::Constvar);
        let constvar = self.model.constvars.last().unwrap().0;
        self.eqn(&[constvar.into(), self.literals[0]], 2, Effect::OnOperand, true);
        self.eqn(&[constvar.into()], 1, Effect::None, false);
        self
    }

    /// Ends the program with everything there is as an output.
    fn finish(self) -> Program {
        let outvars = self.atoms();
        let info = DebugInfo::default();
        self.fixture.builder.finish(&outvars, info, EffectsId::NONE).unwrap()
    }

    /// Ends the program, and goes on with it as a new builder with the same handles.
    fn reopened(mut self) -> Self {
        let live = self.model.live_eqns(self.dce);
        let builder = self.fixture.builder;
        let program = builder.finish(&[], DebugInfo::default(), EffectsId::NONE).unwrap();
        self.fixture.builder = program.into_builder(self.dce);
        for (index, &handles) in self.model.handles.iter().enumerate() {
            for _ in 0..handles {
                self.fixture.builder.retain(var(index));
            }
        }
        self.model_of_eqn = live;
        self
    }
}

fn run(dce: DeadCode, steps: &[Step]) -> Session {
    let mut session = Session::new(dce);
    for step in steps {
        session.take(step);
        session.check();
    }
    session
}

proptest! {
    #[test]
    fn removal_leaves_what_is_reachable(dce in any_mode(), steps in any_steps()) {
        let session = run(dce, &steps);
        let live = session.model.live_eqns(dce);
        let constvars = session.model.live_constvars(dce);
        let model = session.model.clone();
        let program = session.finish();

        prop_assert_eq!(program.num_eqns(), live.len());
        for (eqn, index) in program.eqns().zip(live) {
            let operands: Vec<_> =
                program.eqn_invars(eqn).iter().filter_map(|atom| atom.as_var()).collect();
            prop_assert_eq!(&operands, &model.eqns[index].operands);
            let outputs: Vec<_> = program.eqn_outvars(eqn).collect();
            prop_assert_eq!(&outputs, &model.eqns[index].outputs);
        }
        prop_assert_eq!(program.constvars(), constvars);
        prop_assert_eq!(program.num_vars(), model.handles.len());
    }

    #[test]
    fn what_is_built_is_valid(dce in any_mode(), steps in any_steps()) {
        prop_assert_eq!(verify(&run(dce, &steps).finish()), Ok(()));
    }

    #[test]
    fn a_program_may_be_finished_and_gone_on_with_anywhere(
        dce in any_mode(),
        first in any_steps(),
        second in any_steps(),
    ) {
        let mut at_once = run(dce, &first);
        let mut reopened = run(dce, &first).reopened();
        reopened.check();
        for step in &second {
            at_once.take(step);
            reopened.take(step);
            reopened.check();
        }
        let (at_once, reopened) = (at_once.finish(), reopened.finish());
        prop_assert_eq!(verify(&reopened), Ok(()));
        prop_assert_eq!(at_once.to_string(), reopened.to_string());
    }

    #[test]
    fn passes_make_programs_with_the_same_effects(dce in any_mode(), steps in any_steps()) {
        let program = std::sync::Arc::new(run(dce, &steps).completed().finish());
        let mut plain = Plain::default();
        let result = optimize(&program, &Options::default(), &mut plain).unwrap();
        let effects = |program: &Program| -> Vec<_> {
            let lists = program.eqns().map(|eqn| program.eqn(eqn).effects);
            lists.map(|id| program.effect_list(id).to_vec()).filter(|l| !l.is_empty()).collect()
        };
        prop_assert_eq!(effects(&result), effects(&program));
        prop_assert_eq!(result.invars(), program.invars());
        prop_assert_eq!(result.debug_info(), program.debug_info());
        let again = optimize(&result, &Options::default(), &mut plain).unwrap();
        prop_assert!(std::sync::Arc::ptr_eq(&again, &result), "{result}\n{again}");
    }

    #[test]
    fn a_mutation_is_found(
        dce in any_mode(),
        steps in any_steps(),
        mutation in 0..MUTATIONS.len(),
        pick in any::<Index>(),
        is_nested in any::<bool>(),
    ) {
        let mut program = run(dce, &steps).completed().finish();
        let (name, mutate) = MUTATIONS[mutation];
        let expected = mutate(&mut UncheckedEdit(&mut program), pick);
        let mut path = vec![];
        if is_nested {
            let (outer, id) = enclosing(program);
            program = outer;
            path.push(id);
        }
        let violations = verify(&program).unwrap_err();
        prop_assert!(violations.iter().all(|violation| violation.path == path));
        let found: Vec<_> = violations.into_iter().map(|violation| violation.kind).collect();
        prop_assert!(found.contains(&expected), "{name}: {expected} is not among {found:#?}");
    }
}

/// The id of no row.
const FAR: u32 = 99_999;

fn out_of_range(place: Place, id: &dyn ToString) -> ViolationKind {
    ViolationKind::OutOfRange { place, id: id.to_string().into() }
}

/// Rows that the program of [`Session::completed`] has.
fn pick_eqn(program: &Program, pick: Index, is_eligible: impl Fn(Eqn) -> bool) -> Eqn {
    *pick.get(&program.eqns().filter(|&eqn| is_eligible(eqn)).collect::<Vec<_>>())
}

fn pick_operand(program: &Program, pick: Index) -> (Eqn, usize) {
    let eqn = pick_eqn(program, pick, |eqn| !program.eqn_invars(eqn).is_empty());
    (eqn, pick.index(program.eqn_invars(eqn).len()))
}

fn has_outputs(program: &Program, eqn: Eqn) -> bool {
    program.eqn(eqn).num_outvars > 0
}

/// The first output of the last equation, which is defined after every operand.
fn last_output(program: &Program) -> Var {
    let last = program.eqns().next_back().unwrap();
    program.eqn(last).first_outvar
}

type Mutation = fn(&mut UncheckedEdit<'_>, Index) -> ViolationKind;

/// Changes of a row that break an invariant, whatever the program: each says what is to be found.
const MUTATIONS: &[(&str, Mutation)] = &[
    ("unknown primitive", |e, pick| {
        let eqn = pick_eqn(e.0, pick, |_| true);
        e.eqn(eqn).primitive = PrimitiveId::from_u32(FAR);
        out_of_range(Place::Eqn(eqn), &PrimitiveId::from_u32(FAR))
    }),
    ("unknown parameters", |e, pick| {
        let eqn = pick_eqn(e.0, pick, |_| true);
        e.eqn(eqn).params = ParamsId::from_u32(FAR);
        out_of_range(Place::Eqn(eqn), &ParamsId::from_u32(FAR))
    }),
    ("unknown source", |e, pick| {
        let eqn = pick_eqn(e.0, pick, |_| true);
        e.eqn(eqn).source = SourceId::from_u32(FAR);
        out_of_range(Place::Eqn(eqn), &SourceId::from_u32(FAR))
    }),
    ("unknown context", |e, pick| {
        let eqn = pick_eqn(e.0, pick, |_| true);
        e.eqn(eqn).context = ContextId::from_u32(FAR);
        out_of_range(Place::Eqn(eqn), &ContextId::from_u32(FAR))
    }),
    ("unknown effects", |e, pick| {
        let eqn = pick_eqn(e.0, pick, |_| true);
        e.eqn(eqn).effects = EffectsId::from_u32(FAR);
        out_of_range(Place::Effect(eqn), &EffectsId::from_u32(FAR))
    }),
    ("unknown effects of the program", |e, _| {
        e.set_effects(EffectsId::from_u32(FAR));
        out_of_range(Place::ProgramEffects, &EffectsId::from_u32(FAR))
    }),
    ("unknown operand", |e, pick| {
        let (eqn, index) = pick_operand(e.0, pick);
        e.eqn_invars(eqn)[index] = Var::from_u32(FAR).into();
        out_of_range(Place::Operand(eqn, index), &Var::from_u32(FAR))
    }),
    ("unknown literal", |e, pick| {
        let (eqn, index) = pick_operand(e.0, pick);
        e.eqn_invars(eqn)[index] = LiteralId::from_u32(FAR).into();
        out_of_range(Place::Operand(eqn, index), &LiteralId::from_u32(FAR))
    }),
    ("unknown output of the program", |e, pick| {
        let index = pick.index(e.outvars().len());
        e.outvars()[index] = Var::from_u32(FAR).into();
        out_of_range(Place::Outvar(index), &Var::from_u32(FAR))
    }),
    ("unknown type", |e, pick| {
        let var = var(pick.index(e.0.num_vars()));
        let def = e.0.var(var).def;
        e.set_var(var, VarData { ty: TypeId::from_u32(FAR), def });
        out_of_range(Place::Var(var), &TypeId::from_u32(FAR))
    }),
    ("unknown nested program", |e, pick| {
        let nested = ParamValue::Program(SubprogramId::from_u32(FAR));
        let params = e.add_params(vec![("jaxpr".into(), nested)]);
        let eqn = pick_eqn(e.0, pick, |_| true);
        e.eqn(eqn).params = params;
        out_of_range(Place::Params(params), &SubprogramId::from_u32(FAR))
    }),
    ("outputs beyond the variables", |e, pick| {
        let eqn = pick_eqn(e.0, pick, |_| true);
        let num_vars = e.0.num_vars();
        e.eqn(eqn).num_outvars = u32::try_from(num_vars).unwrap() + 1;
        out_of_range(Place::Eqn(eqn), &var(num_vars))
    }),
    ("outputs of another equation", |e, pick| {
        let first = e.0.eqns().find(|&eqn| has_outputs(e.0, eqn)).unwrap();
        let second = pick_eqn(e.0, pick, |eqn| eqn > first && has_outputs(e.0, eqn));
        let var = e.0.eqn(first).first_outvar;
        e.eqn(second).first_outvar = var;
        ViolationKind::DefinedTwice { var, first, second }
    }),
    ("an operand not yet defined", |e, pick| {
        let (eqn, index) = pick_operand(e.0, pick);
        let var = last_output(e.0);
        e.eqn_invars(eqn)[index] = var.into();
        ViolationKind::NotDefined { place: Place::Operand(eqn, index), var }
    }),
    ("an effect on what is not yet defined", |e, pick| {
        let eqn = pick_eqn(e.0, pick, |_| true);
        let var = last_output(e.0);
        e.eqn(eqn).effects = e.add_effects(&[effect("write", Some(var))]);
        ViolationKind::NotDefined { place: Place::Effect(eqn), var }
    }),
    ("a removed input", |e, pick| {
        let var = *pick.get(e.0.invars());
        let ty = e.0.var_type(var);
        e.set_var(var, VarData { ty, def: Def::Removed });
        ViolationKind::WrongDef { var, expected: Def::Invar, found: Def::Removed }
    }),
    ("an input that is not listed", |e, pick| {
        let eqn = pick_eqn(e.0, pick, |eqn| has_outputs(e.0, eqn));
        let var = e.0.eqn(eqn).first_outvar;
        let ty = e.0.var_type(var);
        e.set_var(var, VarData { ty, def: Def::Invar });
        ViolationKind::NotAtDef { var, def: Def::Invar }
    }),
    ("an input listed twice", |e, pick| {
        let var = *pick.get(e.0.invars());
        e.invars().push(var);
        ViolationKind::ListedTwice { var }
    }),
    ("the value of another constant", |e, pick| {
        let index = pick.index(e.0.constvars().len());
        let (var, value) = e.0.constvars()[index];
        e.constvars()[index].1 = ConstId::from_u32(FAR);
        let expected = Def::Constvar(ConstId::from_u32(FAR));
        ViolationKind::WrongDef { var, expected, found: Def::Constvar(value) }
    }),
    ("no single result", |e, pick| {
        let eqn = pick_eqn(e.0, pick, |eqn| e.0.eqn(eqn).num_outvars == 1);
        e.eqn(eqn).num_outvars = 0;
        ViolationKind::OutputCount { eqn, primitive: e.0.eqn(eqn).primitive, found: 0 }
    }),
    ("unsorted parameters", |e, _| {
        let entries = ["b", "a"].map(|name| (name.into(), ParamValue::None));
        ViolationKind::UnsortedParams { params: e.add_params(entries.into()), name: "a".into() }
    }),
    ("missing names", |e, _| {
        let expected = e.0.outvars().len();
        e.debug_info().result_paths = Some(names(&[]));
        ViolationKind::NameCount { what: "result paths", expected, found: 0 }
    }),
];
