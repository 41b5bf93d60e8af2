"""Reductions, cumulative functions, sorting, searching and statistics of jax.numpy."""

import jax.numpy as jnp

from corpus.registry import boolean, call, f32, i32, unit

X = f32(3, 4)

for _name in """
    sum prod max min mean var std any all nansum nanprod nanmax nanmin nanmean nanvar nanstd ptp
    argmax argmin nanargmax nanargmin median nanmedian count_nonzero amax amin average
""".split():
    call(f"jnp.{_name}", getattr(jnp, _name), X)

call("sum_axis_keepdims", lambda x: jnp.sum(x, axis=1, keepdims=True), X)
call("sum_where", lambda x, m: jnp.sum(x, where=m, initial=2.0), X, boolean(3, 4))
call("sum_dtype", lambda x: jnp.sum(x, axis=(0, -1), dtype=jnp.bfloat16), X, tolerance=1e-2)
call("sum_of_bools", jnp.sum, boolean(3, 4))
call("mean_of_ints", jnp.mean, i32(3, 4))
call("max_initial_where", lambda x, m: jnp.max(x, 0, where=m, initial=-9.0), X, boolean(3, 4))
call("var_ddof", lambda x: (jnp.var(x, axis=0, ddof=1), jnp.std(x, axis=1, correction=1)), X)
call("average_weights", lambda x, w: jnp.average(x, 1, w, returned=True), X, unit(4))
call("argmax_axis", lambda x: (jnp.argmax(x, 1), x.argmin(axis=0, keepdims=True)), X)
for _name in "cumsum cumprod nancumsum nancumprod".split():
    call(f"jnp.{_name}", lambda x, function=getattr(jnp, _name): function(x, axis=0), X)
for _name in "cumulative_sum cumulative_prod".split():
    call(
        f"jnp.{_name}",
        lambda x, function=getattr(jnp, _name): function(x, axis=1, include_initial=True),
        X,
    )
call("diff", lambda x: jnp.diff(x, n=2, axis=1, prepend=0.0), X)
call("ediff1d", lambda x: jnp.ediff1d(x, to_end=jnp.float32(1)), f32(4))
call("gradient", jnp.gradient, X)
call("trapezoid", jnp.trapezoid, X)
call("sort", lambda x: (jnp.sort(x, axis=0), jnp.sort(x, descending=True)), X)
call("argsort", lambda x: (jnp.argsort(x), jnp.argsort(x, axis=0, descending=True)), X)
call("sort_unstable", lambda x: jnp.argsort(x, stable=False), f32(5))
call("lexsort", lambda x, y: jnp.lexsort((x, y)), f32(4), i32(4))
call("sort_complex", jnp.sort_complex, f32(4))
call("partition", lambda x: (jnp.partition(x, 1), jnp.argpartition(x, 2)), f32(5))
call("searchsorted", lambda x, v: jnp.searchsorted(jnp.sort(x), v), f32(6), f32(3))
for _method in ("scan_unrolled", "sort", "compare_all"):
    call(
        f"searchsorted_{_method}",
        lambda x, v, method=_method: jnp.searchsorted(jnp.sort(x), v, side="right", method=method),
        f32(6),
        f32(3),
    )
call("digitize", lambda x: jnp.digitize(x, jnp.array([-1.0, 0.0, 1.0])), f32(5))
call("nonzero_sized", lambda x: jnp.nonzero(x > 0, size=3, fill_value=-1), f32(5))
call("argwhere_sized", lambda x: jnp.argwhere(x > 0, size=4), f32(2, 3))
call("flatnonzero_sized", lambda x: jnp.flatnonzero(x > 0, size=2), f32(5))
call(
    "unique_sized", lambda x: jnp.unique(x, size=3, return_counts=True, return_inverse=True), i32(6)
)
call("extract_sized", lambda x: jnp.extract(x > 0, x, size=3), f32(6))
call("set_operations", lambda x, y: (jnp.isin(x, y), jnp.union1d(x, y, size=5)), i32(4), i32(3))
call(
    "intersect_setdiff",
    lambda x, y: (jnp.intersect1d(x, y, size=3), jnp.setdiff1d(x, y, size=3)),
    i32(4),
    i32(3),
)
call("bincount", lambda x: jnp.bincount(x, length=5), i32(6, low=0, high=5))
call("bincount_weights", lambda x, w: jnp.bincount(x, w, length=5), i32(6, low=0, high=5), f32(6))
call("histogram", lambda x: jnp.histogram(x, bins=4, range=(-2.0, 2.0)), f32(8))
call("histogram_auto_range", lambda x: jnp.histogram(x, bins=3, density=True), f32(8))
call("histogram2d", lambda x, y: jnp.histogram2d(x, y, bins=2), f32(5), f32(5))
call(
    "percentile",
    lambda x: (jnp.percentile(x, 30.0), jnp.quantile(x, jnp.array([0.1, 0.9]), axis=0)),
    X,
)
for _method in ("lower", "higher", "nearest", "midpoint"):
    call(f"quantile_{_method}", lambda x, method=_method: jnp.quantile(x, 0.4, method=method), X)
call("nanquantile", lambda x: jnp.nanquantile(x, 0.25, axis=1), X)
call("cov_corrcoef", lambda x: (jnp.cov(x), jnp.corrcoef(x)), X)
call(
    "array_equal",
    lambda x, y: (jnp.array_equal(x, y), jnp.allclose(x, y), jnp.array_equiv(x, y)),
    X,
    X,
)
call(
    "reduction_methods",
    lambda x: (x.sum(0), x.mean(), x.max(1), x.std(), x.cumsum(), x.argsort()),
    X,
)
call(
    "ufunc_methods",
    lambda x: (jnp.add.reduce(x), jnp.multiply.accumulate(x), jnp.add.outer(x[0], x[1])),
    X,
)
call("ufunc_at", lambda x, i: jnp.add.at(x, i, 1.0, inplace=False), f32(4), i32(3, low=0, high=4))
call("ufunc_reduceat", lambda x: jnp.add.reduceat(x, jnp.array([0, 2])), f32(5))
call(
    "polynomials",
    lambda p, x: (
        jnp.polyval(p, x),
        jnp.polyadd(p, p),
        jnp.polymul(p, p),
        jnp.polyder(p),
        jnp.polyint(p),
    ),
    f32(3),
    f32(2),
)
call("polyfit", lambda x, y: jnp.polyfit(x, y, 2), f32(6), f32(6), tolerance=1e-3)
call(
    "poly_roots",
    lambda p: (jnp.poly(p), jnp.roots(jnp.array([1.0, -3.0, 2.0]), strip_zeros=False)),
    f32(2),
    tolerance=1e-3,
)
call(
    "convolve_correlate",
    lambda x, y: (jnp.convolve(x, y), jnp.correlate(x, y, "same")),
    f32(5),
    f32(3),
)
call(
    "outer_inner_kron",
    lambda x, y: (jnp.outer(x, y), jnp.inner(x, x), jnp.kron(x, y), jnp.vdot(x, x)),
    f32(2),
    f32(3),
)
call("cross", jnp.cross, f32(2, 3), f32(3))
call(
    "windows",
    lambda: (jnp.bartlett(4), jnp.blackman(4), jnp.hamming(4), jnp.hanning(4), jnp.kaiser(4, 3.0)),
)
