"""Rules: of the user's primitives, of jax's own, and of functions with derivative rules."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import core
from jax._src.interpreters import partial_eval as pe
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from world.world import attribute, item, kind, module

RULES = "rules of primitives"
DERIVATIVE_RULES = "derivative rules of functions"


def complete(name: str = "p") -> Primitive:
    """A primitive of the user's with all rules: twice its argument."""
    p = Primitive(name)
    p.def_abstract_eval(lambda x: core.ShapedArray(x.shape, x.dtype))
    p.def_impl(lambda x: x * 2)
    ad.deflinear(p, lambda ct: [ct * 2.0])
    batching.defvectorized(p)
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x * 2, False))
    return p


def _scaled(p):
    return lambda x: p.bind(jnp.sin(x))


# ---- abstract evaluation ----


@kind(RULES, tells=False)
def abstract_evaluation_reads_a_list():
    p, dtypes = complete(), [jnp.float32]
    p.def_abstract_eval(lambda x: core.ShapedArray(x.shape, dtypes[0]))
    return lambda x: p.bind(x).astype(jnp.float32), item(dtypes, 0, jnp.float16)


@kind(RULES, tells=False)
def abstract_evaluation_registered_anew():
    p = complete()

    def change(on):
        dtype = jnp.float16 if on else jnp.float32
        p.def_abstract_eval(lambda x: core.ShapedArray(x.shape, dtype))

    change(False)
    return lambda x: p.bind(x).astype(jnp.float32), change


@kind(RULES, tells=False)
def abstract_evaluation_counts_its_calls():
    p, calls, dtypes = complete(), [], [jnp.float32]

    def rule(x):
        calls.append(x.dtype)
        return core.ShapedArray(x.shape, dtypes[0])

    p.def_abstract_eval(rule)
    return (
        lambda x: jnp.cos(p.bind(x).astype(jnp.float32)),
        item(dtypes, 0, jnp.bfloat16),
        lambda: len(calls),
    )


@kind(RULES, tells=False)
def abstract_evaluation_with_effects_registered_anew():
    p = complete()

    class Noise(jax._src.effects.Effect):
        __str__ = lambda self: "noise"

    noise = Noise()
    jax._src.effects.control_flow_allowed_effects.add_type(Noise)
    jax._src.effects.remat_allowed_effects.add_type(Noise)
    jax._src.effects.custom_derivatives_allowed_effects.add_type(Noise)

    def change(on):
        effects = {noise} if on else set()
        p.def_effectful_abstract_eval(lambda x: (core.ShapedArray(x.shape, x.dtype), effects))

    change(False)
    return lambda x: p.bind(x), change


@kind(RULES, tells=False)
def abstract_evaluation_begins_to_fail():
    p, fails = complete(), [False]

    def rule(x):
        if fails[0]:
            raise TypeError("not today")
        return core.ShapedArray(x.shape, x.dtype)

    p.def_abstract_eval(rule)
    return _scaled(p), item(fails, 0, True)


@kind(RULES, tells=False)
def abstract_evaluation_of_sin():
    rule = lambda x, **_: (core.ShapedArray(x.shape, jnp.float16), set())
    return lambda x: lax.sin(x).astype(jnp.float32), attribute(lax.sin_p, "abstract_eval", rule)


# ---- derivatives ----


@kind(RULES, needs="derivative")
def transposition_reads_a_list():
    p, scale = complete(), [2.0]
    ad.deflinear(p, lambda ct: [ct * scale[0]])
    return _scaled(p), item(scale, 0, 7.0)


@kind(RULES, needs="derivative")
def transposition_registered_anew():
    p = complete()

    def change(on):
        scale = 7.0 if on else 2.0
        ad.deflinear(p, lambda ct: [ct * scale])

    change(False)
    return _scaled(p), change


@kind(RULES, needs="derivative")
def transposition_counts_its_calls():
    p, calls, scale = complete(), [], [2.0]

    def rule(ct):
        calls.append(1)
        return [ct * scale[0]]

    ad.deflinear(p, rule)
    return _scaled(p), item(scale, 0, 7.0), lambda: len(calls)


@kind(RULES, needs="derivative")
def transposition_in_the_table():
    p = complete()
    new = lambda ct, x: [ct * 9.0 if ad.is_undefined_primal(x) else None]
    return _scaled(p), item(ad.primitive_transposes, p, new)


@kind(RULES, needs="derivative")
def transposition_of_the_second_kind():
    p = complete()
    ad.deflinear2(p, lambda ct, x: [ct * SCALE])
    return _scaled(p), _global("SCALE", 7.0)


@kind(RULES, needs="derivative")
def jvp_reads_a_global():
    p = complete()
    ad.primitive_jvps[p] = lambda ps, ts: (p.bind(*ps), ad.instantiate_zeros(ts[0]) * SCALE)
    return _scaled(p), _global("SCALE", 7.0)


@kind(RULES, needs="derivative")
def jvp_registered_anew():
    p = complete()

    def change(on):
        scale = 7.0 if on else 2.0
        ad.defjvp(p, lambda t, x: t * scale * jnp.cos(x))

    change(False)
    return _scaled(p), change


@kind(RULES, needs="derivative")
def jvp_reads_an_attribute_of_a_module():
    p = complete()
    users = jax.tree_util.Partial(lambda: None)
    users.__dict__["scale"] = 2.0
    ad.defjvp(p, lambda t, x: t * users.scale)
    return _scaled(p), item(users.__dict__, "scale", 7.0)


@kind(RULES, needs="derivative")
def jvp_counts_its_calls():
    p, calls, scale = complete(), [0], [2.0]

    def rule(t, x):
        calls[0] += 1
        return t * scale[0]

    ad.defjvp(p, rule)
    return _scaled(p), item(scale, 0, 7.0), lambda: calls[0]


@kind(RULES, needs="tangent")
def jvp_of_sin():
    def f(ps, ts, **params):
        return lax.sin_p.bind(*ps, **params), ad.instantiate_zeros(ts[0]) * 7.0

    return lambda x: jnp.sin(x) + lax.sin(x), item(ad.primitive_jvps, lax.sin_p, f)


@kind(RULES, needs="tangent")
def jvp_of_mul():
    def new(ps, ts, **params):
        out = lax.mul_p.bind(*ps, **params)
        return out, lax.neg(sum(ad.instantiate_zeros(t) for t in ts))

    return lambda x: x * jnp.sin(x), item(ad.primitive_jvps, lax.mul_p, new)


@kind(RULES, needs="derivative")
def transposition_of_neg():
    new = lambda ct, x: [lax.mul(ct, lax.full_like(ct, -3.0))]
    return lambda x: -jnp.sin(x), item(ad.primitive_transposes, lax.neg_p, new)


@kind(RULES, needs="derivative")
def transposition_of_reduce_sum():
    rule = ad.primitive_transposes[lax.reduce_sum_p]

    def new(*args, **params):
        return [c if c is None else lax.neg(c) for c in rule(*args, **params)]

    return lambda x: x * jnp.sum(x), item(ad.primitive_transposes, lax.reduce_sum_p, new)


@kind(RULES, needs="derivative")
def fancy_transposition_of_mul():
    table = getattr(ad, "fancy_transposes", None) or jax._src.interpreters.ad.fancy_transposes

    def new(ct, x, y, **params):
        for operand in (x, y):
            if isinstance(operand, jax._src.interpreters.ad.GradAccum):
                operand.accum(lax.mul(ct, lax.full_like(ct, 5.0)))

    return lambda x: jnp.sin(x) * 2.0, item(table, lax.mul_p, new)


# ---- batching ----


@kind(RULES, needs="batch")
def batching_registered_anew():
    p = complete()

    def change(on):
        scale = 7.0 if on else 2.0
        batching.primitive_batchers[p] = lambda xs, ds: (p.bind(xs[0] * scale), ds[0])

    change(False)
    return _scaled(p), change


@kind(RULES, needs="batch")
def batching_reads_a_list():
    p, scale = complete(), [2.0]
    batching.primitive_batchers[p] = lambda xs, ds: (p.bind(xs[0] * scale[0]), ds[0])
    return _scaled(p), item(scale, 0, 7.0)


@kind(RULES, needs="batch")
def batching_counts_its_calls():
    p, calls, scale = complete(), set(), [2.0]

    def rule(xs, ds):
        calls.add(len(calls))
        return p.bind(xs[0] * scale[0]), ds[0]

    batching.primitive_batchers[p] = rule
    return _scaled(p), item(scale, 0, 7.0), lambda: len(calls)


@kind(RULES, needs="batch")
def batching_of_sin():
    def new(axis_data, xs, ds, **params):
        return lax.sin_p.bind(lax.neg(xs[0]), **params), ds[0]

    return (
        lambda x: jnp.sin(x) + lax.sin(x),
        item(batching.fancy_primitive_batchers, lax.sin_p, new),
    )


@kind(RULES, needs="batch")
def batching_of_add():
    rule = batching.fancy_primitive_batchers[lax.add_p]

    def change(on):
        if on:
            batching.primitive_batchers[lax.add_p] = new
        else:
            batching.fancy_primitive_batchers[lax.add_p] = rule

    def new(xs, ds, **params):
        return lax.neg_p.bind(xs[0]), ds[0]

    return lambda x: lax.add(x, jnp.sin(x)), change


# ---- partial evaluation and dead code ----


@kind(RULES, needs="checkpoint derivative")
def partial_evaluation_of_the_users():
    p = complete()

    def new(unks_in, inst_in, eqn):
        return pe.partial_eval_jaxpr_custom_rule_not_implemented("p", None, unks_in, inst_in, eqn)

    return _scaled(p), item(pe.partial_eval_jaxpr_custom_rules, p, new)


@kind(RULES, needs="checkpoint derivative")
def partial_evaluation_of_sin():
    def new(saveable, unks_in, inst_in, eqn):
        return None, eqn, [True], [True], list(eqn.invars)

    return lambda x: jnp.sin(x) * 2.0, item(pe.partial_eval_jaxpr_custom_rules, lax.sin_p, new)


@kind(RULES, needs="checkpoint derivative")
def dead_code_of_the_users():
    p = complete()

    def new(used, eqn):
        return [True], eqn

    def f(x):
        p.bind(x)
        return jnp.sin(x)

    return f, item(pe.dce_rules, p, new)


@kind(RULES, needs="checkpoint derivative")
def dead_code_of_cos():
    def new(used, eqn):
        return [True], eqn

    def f(x):
        lax.cos(x)
        return jnp.sin(x)

    return f, item(pe.dce_rules, lax.cos_p, new)


@kind(RULES)
def staging_of_the_users():
    p = complete()

    def new(trace, source_info, x, **params):
        return trace.default_process_primitive(lax.neg_p, [x], {}, source_info=source_info)

    return lambda x: p.bind(x), item(pe.custom_staging_rules, p, new)


@kind(RULES)
def staging_of_neg():
    def new(trace, source_info, x, **params):
        return trace.default_process_primitive(
            lax.sin_p, [x], {"accuracy": None}, source_info=source_info
        )

    return lambda x: lax.neg(x), item(pe.custom_staging_rules, lax.neg_p, new)


@kind(RULES)
def forwarding_of_the_users():
    p = complete()
    return lambda x: jnp.sin(p.bind(x)), item(pe.forwarding_rules, p, lambda eqn: ([0], None))


@kind(RULES)
def forwarding_of_neg():
    return lambda x: jnp.sin(lax.neg(x)), item(
        pe.forwarding_rules, lax.neg_p, lambda eqn: ([0], None)
    )


@kind(RULES)
def constant_folding_of_neg():
    def new(consts, params, out_avals):
        return [np.float32(3)] if consts[0] is not None else None

    return lambda x: x * -jnp.ones(()), item(pe.const_fold_rules, lax.neg_p, new)


# ---- printing and checking ----


@kind(RULES)
def printing_of_the_users():
    p = complete()
    rule = lambda eqn, context, settings: core.pp.text("printed otherwise")
    return lambda x: p.bind(x), item(core.pp_eqn_rules, p, rule)


@kind(RULES)
def printing_of_sin():
    rule = lambda eqn, context, settings: core.pp.text("printed otherwise")
    return lambda x: lax.sin(x), item(core.pp_eqn_rules, lax.sin_p, rule)


@kind(RULES)
def printing_reads_a_list():
    p, words = complete(), ["before"]
    core.pp_eqn_rules[p] = lambda eqn, context, settings: core.pp.text(words[0])
    return lambda x: p.bind(x), item(words, 0, "after")


@kind(RULES)
def typecheck_of_the_users():
    p = complete()
    jax.config.update("jax_enable_checks", True)

    def new(ctx, *atoms, **params):
        raise core.JaxprTypeError("refused")

    return lambda x: p.bind(x), item(core.custom_typechecks, p, new)


@kind(RULES)
def name_of_a_primitive():
    p = complete()
    return lambda x: p.bind(x), attribute(p, "name", "q")


@kind(RULES)
def name_of_sin():
    return lambda x: jnp.sin(x), attribute(lax.sin_p, "name", "sinus")


@kind(RULES)
def bind_of_the_users():
    p = complete()
    q = complete("q")
    return lambda x: p.bind(x), attribute(p, "bind", lambda x: q.bind(q.bind(x)))


@kind(RULES)
def bind_of_sin():
    return lambda x: lax.sin(x), attribute(lax.sin_p, "bind", lambda x, **_: lax.neg(x))


@kind(RULES)
def bind_with_trace_of_the_users_class():
    class Own(Primitive):
        def bind_with_trace(self, trace, args, params, *rest):
            return super().bind_with_trace(trace, args, params, *rest)

    p = Own("p")
    p.def_abstract_eval(lambda x: core.ShapedArray(x.shape, x.dtype))

    def new(self, trace, args, params, *rest):
        return lax.neg_p.bind_with_trace(trace, args, params, *rest)

    return lambda x: p.bind(x), attribute(Own, "bind_with_trace", new)


@kind(RULES, needs="eager")
def implementation_of_the_users():
    p, scale = complete(), [2.0]
    p.def_impl(lambda x: x * scale[0])
    return lambda x: p.bind(x), item(scale, 0, 7.0)


# ---- derivative rules of functions ----


def _function():
    f = jax.custom_jvp(lambda v: v * 2)
    f.defjvp(lambda p, t: (f(*p), t[0] * 2.0))
    return f


@kind(DERIVATIVE_RULES, needs="derivative")
def rule_of_a_custom_jvp_set_anew():
    f = _function()

    def change(on):
        scale = 7.0 if on else 2.0
        f.defjvp(lambda p, t: (f(*p), t[0] * scale))

    return lambda x: f(jnp.sin(x)), change


@kind(DERIVATIVE_RULES, needs="derivative")
def rule_of_a_custom_jvp_reads_a_global():
    global _jvp_of_module
    _jvp_of_module = jax.custom_jvp(lambda v: v * 2)
    _jvp_of_module.defjvp(lambda p, t: (_jvp_of_module(*p), t[0] * SCALE))
    return lambda x: _jvp_of_module(jnp.sin(x)), _global("SCALE", 7.0)


@kind(DERIVATIVE_RULES, needs="derivative")
def rule_of_a_custom_jvp_counts_its_calls():
    global _jvp_that_counts
    calls = [0]

    def rule(p, t):
        calls[0] += 1
        return _jvp_that_counts(*p), t[0] * SCALE

    _jvp_that_counts = jax.custom_jvp(lambda v: v * 2)
    _jvp_that_counts.defjvp(rule)
    return lambda x: _jvp_that_counts(jnp.sin(x)), _global("SCALE", 7.0), lambda: calls[0]


@kind(DERIVATIVE_RULES, needs="derivative")
def rules_of_a_custom_vjp_set_anew():
    f = jax.custom_vjp(lambda v: v * 2)

    def change(on):
        scale = 7.0 if on else 2.0
        f.defvjp(lambda v: (f(v), v), lambda r, ct: (ct * scale,))

    change(False)
    return lambda x: f(jnp.sin(x)), change


@kind(DERIVATIVE_RULES, needs="derivative")
def backward_rule_reads_a_global():
    global _vjp_of_module
    _vjp_of_module = jax.custom_vjp(lambda v: v * 2)
    _vjp_of_module.defvjp(lambda v: (_vjp_of_module(v), v), lambda r, ct: (ct * SCALE,))
    return lambda x: _vjp_of_module(jnp.sin(x)), _global("SCALE", 7.0)


@kind(DERIVATIVE_RULES, needs="derivative")
def backward_rule_counts_its_calls():
    global _vjp_that_counts
    calls = []

    def backward(r, ct):
        calls.append(1)
        return (ct * SCALE,)

    _vjp_that_counts = jax.custom_vjp(lambda v: v * 2)
    _vjp_that_counts.defvjp(lambda v: (_vjp_that_counts(v), v), backward)
    return lambda x: _vjp_that_counts(jnp.sin(x)), _global("SCALE", 7.0), lambda: len(calls)


@kind(DERIVATIVE_RULES)
def name_of_a_backward_rule():
    global _vjp_named

    def backward(r, ct):
        return (ct * r,)

    _vjp_named = jax.custom_vjp(lambda v: v * 2)
    _vjp_named.defvjp(lambda v: (_vjp_named(v), v), backward)
    return lambda x: _vjp_named(jnp.sin(x)), attribute(backward, "__name__", "other")


@kind(DERIVATIVE_RULES)
def name_of_a_forward_rule():
    global _vjp_named_forward

    def forward(v):
        return _vjp_named_forward(v), v

    _vjp_named_forward = jax.custom_vjp(lambda v: v * 2)
    _vjp_named_forward.defvjp(forward, lambda r, ct: (ct * r,))
    return lambda x: _vjp_named_forward(jnp.sin(x)), attribute(forward, "__name__", "other")


@kind(DERIVATIVE_RULES)
def name_of_a_jvp_rule():
    global _jvp_named

    def rule(p, t):
        return _jvp_named(*p), t[0] * 2

    _jvp_named = jax.custom_jvp(lambda v: v * 2)
    _jvp_named.defjvp(rule)
    return lambda x: _jvp_named(jnp.sin(x)), attribute(rule, "__name__", "other")


@kind(DERIVATIVE_RULES)
def name_of_a_function_with_rules():
    global _named_function

    def double(v):
        return v * 2

    _named_function = jax.custom_jvp(double)
    _named_function.defjvp(lambda p, t: (_named_function(*p), t[0] * 2))
    return lambda x: _named_function(jnp.sin(x)), attribute(double, "__name__", "other")


@kind(DERIVATIVE_RULES)
def function_of_a_custom_jvp_is_exchanged():
    global _exchanged
    _exchanged = jax.custom_jvp(lambda v: v * 2)
    _exchanged.defjvp(lambda p, t: (_exchanged(*p), t[0] * 2))
    return lambda x: _exchanged(jnp.sin(x)), attribute(_exchanged, "fun", lambda v: v * 5)


def _module():
    """Functions with rules as modules have them: by their own names, so that calls are replayed."""
    return module(
        "import jax\nSCALE = 2.0\n"
        "@jax.custom_jvp\ndef double(v):\n  return v * 2\n"
        "@double.defjvp\ndef rule(p, t):\n  return double(*p), t[0] * SCALE\n"
        "@jax.custom_vjp\ndef triple(v):\n  return v * 3\n"
        "def forward(v):\n  return triple(v), v * SCALE\n"
        "def backward(r, ct):\n  return (ct * r,)\n"
        "triple.defvjp(forward, backward)\n"
        "def f(x):\n  return double(x) + triple(x)\n"
    )


@kind(DERIVATIVE_RULES, needs="derivative")
def rules_of_a_module_read_a_global():
    users = _module()
    return users.f, attribute(users, "SCALE", 7.0)


@kind(DERIVATIVE_RULES, needs="derivative")
def rule_of_a_modules_custom_jvp_set_anew():
    users = _module()

    def change(on):
        new = lambda p, t: (users.double(*p), t[0] * 7.0)
        users.double.defjvp(new if on else users.rule)

    return users.f, change


@kind(DERIVATIVE_RULES, needs="derivative")
def rules_of_a_modules_custom_vjp_set_anew():
    users = _module()

    def change(on):
        new = lambda r, ct: (ct * 7.0,)
        users.triple.defvjp(users.forward, new if on else users.backward)

    return users.f, change


@kind(DERIVATIVE_RULES, needs="derivative")
def code_of_a_modules_backward_rule():
    users = _module()
    new = lambda r, ct: (ct * r * 7.0,)
    return users.f, attribute(users.backward, "__code__", new.__code__)


@kind(DERIVATIVE_RULES)
def name_of_a_modules_rules():
    users = _module()
    changes = [attribute(f, "__name__", "other") for f in (users.rule, users.backward)]
    return users.f, lambda on: [change(on) for change in changes]


@kind(DERIVATIVE_RULES, needs="derivative")
def rule_of_relu():
    f = jax.nn.relu
    old = f.jvp

    def change(on):
        f.defjvp((lambda p, t: (f(*p), t[0] * 7.0)) if on else old)

    return lambda x: jax.nn.relu(x), change


@kind(DERIVATIVE_RULES, needs="checkpoint derivative")
def policy_of_a_checkpoint_reads_a_list():
    saves = [True]
    policy = lambda *_, **__: saves[0]
    return (
        lambda x: jax.checkpoint(lambda v: jnp.sin(jnp.cos(v)), policy=policy)(x),
        item(saves, 0, False),
    )


@kind(DERIVATIVE_RULES, needs="checkpoint derivative")
def policy_of_jax_is_exchanged():
    policies = jax.checkpoint_policies
    return (
        lambda x: jax.checkpoint(
            lambda v: jnp.sin(jnp.cos(v)), policy=jax.checkpoint_policies.everything_saveable
        )(x),
        attribute(policies, "everything_saveable", policies.nothing_saveable),
    )


SCALE = 2.0


def _global(name, new):
    return item(globals(), name, new)
