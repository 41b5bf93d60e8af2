"""Fourier transforms."""

import jax
import jax.numpy as jnp

from corpus.registry import c64, call, f32

fft = jnp.fft

for _name in "fft ifft hfft ihfft rfft irfft".split():
    call(f"fft_{_name}", getattr(fft, _name), f32(6))
for _name in "fft2 ifft2 fftn ifftn rfft2 irfft2 rfftn irfftn".split():
    call(f"fft_{_name}", getattr(fft, _name), f32(4, 6))

call("fft_length_axis_norm", lambda z: fft.fft(z, n=5, axis=0, norm="ortho"), c64(4, 3))
call(
    "fft_shift",
    lambda z: (fft.fftshift(z), fft.ifftshift(z, axes=0), fft.fftfreq(5), fft.rfftfreq(6)),
    c64(4, 3),
)
call("fft_grad", lambda x: jax.grad(lambda v: jnp.abs(fft.rfft(v)).sum())(x), f32(6))
call("fft_vmap", lambda x: jax.vmap(fft.rfft)(x), f32(3, 4))
call("fft_lax", lambda x: jax.lax.fft(x, jax.lax.FftType.RFFT, (4,)), f32(3, 4))
call("scipy_dct", lambda x: (jax.scipy.fft.dct(x), jax.scipy.fft.idct(x, norm="ortho")), f32(6))
call("scipy_dctn", lambda x: (jax.scipy.fft.dctn(x), jax.scipy.fft.idctn(x)), f32(2, 4))
