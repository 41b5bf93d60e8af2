"""jax.scipy: special functions, distributions, signals, images, interpolation, optimisation."""

import jax
import jax.numpy as jnp
import jax.scipy.cluster.vq
import jax.scipy.integrate
import jax.scipy.interpolate
import jax.scipy.ndimage
import jax.scipy.optimize
import jax.scipy.signal
import jax.scipy.sparse.linalg
import jax.scipy.spatial.transform
from jax.scipy import special, stats

from corpus.registry import call, f32, i32, spd, unit

for _name in """
    digamma entr erf erfc erfinv exp1 expi expit fresnel gamma gammaln gammasgn i0 i0e
    i1 i1e log_ndtr log_softmax logit logsumexp ndtr ndtri sici softmax spence
""".split():
    call(f"special_{_name}", getattr(special, _name), unit(3), tolerance=1e-4)

for _name in "beta betaln gammainc gammaincc kl_div rel_entr xlog1py xlogy poch".split():
    call(f"special_{_name}", getattr(special, _name), unit(3), unit(3), tolerance=1e-4)

call("special_bessel_jn", lambda x: special.bessel_jn(x, v=2, n_iter=10), unit(3))
call("special_betainc", special.betainc, unit(3), unit(3), unit(3))
call(
    "special_zeta_polygamma", lambda x: (special.zeta(x + 2, 1.0), special.polygamma(1, x)), unit(3)
)
call("special_multigammaln", lambda x: special.multigammaln(x + 3, 2), unit(3))
call(
    "special_factorial_bernoulli",
    lambda n: (special.factorial(n), special.bernoulli(4)),
    i32(3, low=0, high=5),
)
call("special_hyp1f1", lambda x: special.hyp1f1(1.0, 2.0, x), unit(3), tolerance=1e-4)
call("special_hyp2f1", lambda x: special.hyp2f1(1.0, 2.0, 3.0, x), unit(3), tolerance=1e-3)
call(
    "special_sph_harm",
    lambda t, p: special.sph_harm_y(jnp.array([2]), jnp.array([1]), t, p, n_max=2),
    unit(1),
    unit(1),
)
call(
    "special_logsumexp_weights",
    lambda x, b: special.logsumexp(x, axis=1, b=b, return_sign=True),
    f32(2, 3),
    f32(2, 3),
)

STATS_ARGUMENTS = {
    "bernoulli": (i32(3, low=0, high=2), unit(3)),
    "beta": (unit(3), unit(3), unit(3)),
    "betabinom": (i32(3, low=0, high=3), 5, unit(3), unit(3)),
    "binom": (i32(3, low=0, high=3), 5, unit(3)),
    "chi2": (unit(3), unit(3)),
    "dirichlet": (unit(3), unit(3)),
    "gamma": (unit(3), unit(3)),
    "gennorm": (unit(3), unit(3)),
    "geom": (i32(3, low=1, high=4), unit(3)),
    "multinomial": (i32(3, low=0, high=2), 3, unit(3)),
    "multivariate_normal": (f32(3), f32(3), spd(3)),
    "nbinom": (i32(3, low=0, high=4), 5, unit(3)),
    "pareto": (unit(3), unit(3)),
    "poisson": (i32(3, low=0, high=4), unit(3)),
    "t": (unit(3), unit(3)),
    "truncnorm": (unit(3), -1.0, 1.0),
    "vonmises": (unit(3), unit(3)),
    "wrapcauchy": (unit(3), unit(3)),
}

for _name in """
    bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l gumbel_r
    laplace logistic multinomial multivariate_normal nbinom norm pareto poisson t truncnorm uniform
    vonmises wrapcauchy
""".split():
    _distribution = getattr(stats, _name)
    _arguments = STATS_ARGUMENTS.get(_name, (unit(3),))
    _log = "logpmf" if hasattr(_distribution, "logpmf") else "logpdf"
    call(f"stats_{_name}", getattr(_distribution, _log), *_arguments, tolerance=1e-4)

call(
    "stats_norm_functions",
    lambda x: (stats.norm.cdf(x), stats.norm.ppf(x), stats.norm.sf(x), stats.norm.logcdf(x)),
    unit(3),
)
call("stats_sem_mode_rank", lambda x: (stats.sem(x), stats.mode(x).mode, stats.rankdata(x)), f32(6))
call("stats_kde", lambda x, y: stats.gaussian_kde(x).evaluate(y), f32(6), f32(2), tolerance=1e-4)

call("signal_convolve", lambda x, y: jax.scipy.signal.convolve(x, y, mode="same"), f32(5), f32(3))
call("signal_convolve2d", lambda x, y: jax.scipy.signal.convolve2d(x, y), f32(4, 4), f32(2, 2))
call("signal_correlate", lambda x, y: jax.scipy.signal.correlate(x, y), f32(5), f32(3))
call(
    "signal_fftconvolve",
    lambda x, y: jax.scipy.signal.fftconvolve(x, y),
    f32(5),
    f32(3),
    tolerance=1e-4,
)
call("signal_detrend", lambda x: jax.scipy.signal.detrend(x), f32(6), tolerance=1e-3)
call("signal_stft", lambda x: jax.scipy.signal.stft(x, nperseg=4)[2], f32(12), tolerance=1e-4)
call(
    "signal_istft",
    lambda x: jax.scipy.signal.istft(jax.scipy.signal.stft(x, nperseg=4)[2], nperseg=4)[1],
    f32(12),
    tolerance=1e-3,
)
call("signal_welch", lambda x: jax.scipy.signal.welch(x, nperseg=4), f32(12), tolerance=1e-4)
call(
    "ndimage_map_coordinates",
    lambda x, c: jax.scipy.ndimage.map_coordinates(x, [c, c], order=1, mode="nearest"),
    f32(4, 4),
    unit(3),
)
call("integrate_trapezoid", lambda x: jax.scipy.integrate.trapezoid(x, dx=0.5), f32(5))
call(
    "interpolate_grid",
    lambda v, x: jax.scipy.interpolate.RegularGridInterpolator(
        (jnp.arange(3.0), jnp.arange(4.0)), v
    )(x),
    f32(3, 4),
    unit(2, 2),
)
call("cluster_vq", lambda x, c: jax.scipy.cluster.vq.vq(x, c), f32(5, 2), f32(3, 2))
call(
    "optimize_bfgs",
    lambda x: (
        jax.scipy.optimize.minimize(
            lambda v: ((v - 1) ** 2).sum(), x, method="BFGS", options={"maxiter": 3}
        ).x
    ),
    f32(2),
    tolerance=1e-3,
)
call(
    "sparse_cg",
    lambda a, b: jax.scipy.sparse.linalg.cg(a, b, maxiter=3)[0],
    spd(3),
    f32(3),
    tolerance=1e-3,
)
call(
    "sparse_gmres",
    lambda a, b: jax.scipy.sparse.linalg.gmres(a, b, maxiter=2, restart=2)[0],
    spd(3),
    f32(3),
    tolerance=1e-2,
)
call(
    "spatial_rotation",
    lambda q, v: jax.scipy.spatial.transform.Rotation.from_quat(q).apply(v),
    f32(4),
    f32(3),
    tolerance=1e-4,
)
