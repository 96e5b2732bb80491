"""Correct programs: one for each of many functions of JAX's and of optax's, made from tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

X = np.linspace(0.15, 0.85, 12, dtype=np.float32).reshape(3, 4)
Y = np.cos(X) / 2

ONE = {
    "nn": """celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu log_sigmoid log_softmax
        logmeanexp logsumexp mish relu relu6 selu sigmoid silu soft_sign softmax softplus sparse_plus
        sparse_sigmoid squareplus standardize swish tanh log1mexp identity""",
    "numpy": """abs amax amin arccos arcsin arctan arctanh arcsinh average cbrt ceil clip cos cosh cumprod
        cumsum
        deg2rad diff exp exp2 expm1 fabs flip floor gradient log log10 log1p log2 max mean median min
        nan_to_num nanmax nanmean nanmin nanstd nansum nanvar negative prod ptp rad2deg ravel reciprocal rint
        roll.1 rot90 round sign sin sinc sinh sort sqrt square std sum tan tanh trace tril triu trunc var""",
    "scipy.special": """bessel_jn digamma entr erf erfc erfinv expit exp1 gammaln i0 i0e i1 i1e log_ndtr
        log_softmax logit logsumexp ndtr ndtri softmax spence xlog1py.0.5 xlogy.0.5 gamma poch.1.5
        zeta.2.5""",
    "lax": """abs acos asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh cumlogsumexp cummax
        cummin
        cumprod cumsum digamma erf erf_inv erfc exp exp2 expm1 floor is_finite lgamma log log1p logistic neg
        round rsqrt sign sin sinh sqrt square tan tanh""",
    "scipy.stats.norm": "cdf logcdf logpdf pdf sf logsf ppf",
    "scipy.stats.logistic": "cdf logpdf pdf sf",
    "scipy.stats.laplace": "cdf logpdf pdf",
    "scipy.stats.expon": "cdf logpdf pdf",
    "scipy.stats.cauchy": "cdf logpdf pdf",
    "scipy.stats.beta": "logpdf.2.0.3.0 pdf.2.0.3.0",
    "scipy.stats.gamma": "logpdf.2.0 pdf.2.0",
    "scipy.stats.t": "logpdf.2.0 pdf.2.0",
    "scipy.stats.uniform": "cdf",
}
"""Functions of one array, by their modules; those with a number after a dot take it, too."""
TWO = {
    "numpy": """add arctan2 cross_ divide dot_ float_power fmax fmin fmod hypot inner kron logaddexp
        logaddexp2
        maximum minimum multiply outer power remainder subtract tensordot vdot where_ interp_ copysign
        heaviside true_divide""",
    "lax": "add atan2 div max min mul nextafter_ pow rem sub",
    "scipy.special": "betaln rel_entr kl_div xlogy xlog1py gammainc gammaincc",
    "optax": """cosine_distance cosine_similarity hinge_loss huber_loss kl_divergence l2_loss log_cosh
        perceptron_loss poly_loss_cross_entropy safe_softmax_cross_entropy sigmoid_binary_cross_entropy
        sigmoid_focal_loss softmax_cross_entropy squared_error kl_divergence_with_log_targets
        convex_kl_divergence smooth_labels_ absolute_error""",
    "optax.losses": """ranking_softmax_loss sparsemax_loss make_fenchel_young_loss_ multiclass_hinge_loss_
        ntxent_ triplet_margin_loss_""",
}
"""Functions of two arrays; those that end with an underscore are left out."""
BY_NAME = {"bessel_jn": {"v": 2, "n_iter": 20}}
"""What a function takes by name alone."""


def _module(root: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        root = getattr(root, name, None)
    return root


def _called(function: Callable[..., Any], *fixed: float, **by_name: int) -> Callable[..., Any]:
    def program(*args: Any) -> Any:
        return jnp.sum(jnp.asarray(function(*args, *fixed, **by_name)))

    return program


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The programs by name, with their arguments; those whose function is missing here are left out."""
    found: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
    try:
        import optax
    except ImportError:
        optax = None
    for table, args in ((ONE, (X,)), (TWO, (X, Y))):
        for module, names in table.items():
            place = _module(optax, module.partition(".")[2]) if "." in module and "optax" in module else None
            place = optax if module == "optax" else place or _module(jax, module)
            for entry in names.split():
                name, _, numbers = entry.partition(".")
                function = getattr(place, name, None)
                if function is not None and not name.endswith("_"):
                    fixed = [float(numbers)] if numbers.count(".") < 2 and numbers else []
                    fixed = [2.0, 3.0] if numbers == "2.0.3.0" else fixed
                    fixed = [int(n) if module == "numpy" else n for n in fixed]
                    found[f"{module}.{name}{'' if len(args) == 1 else ' of two'}"] = (
                        _called(function, *fixed, **BY_NAME.get(name, {})),
                        args,
                    )
    return found


def arrives(f: Callable[..., Any], args: tuple[Any, ...]) -> list[bool]:
    """For each argument, whether the gradient of JAX's is other than zero at any of several points.

    At the last of them some numbers are zeros; only finite gradients count.
    """
    found = [False] * len(args)
    rng = np.random.default_rng(0)
    for draw in range(4):
        given = [a if not draw else np.asarray(rng.uniform(0.1, 0.9, a.shape), a.dtype) for a in args]
        if draw == 3:
            given[0][0] = 0
        for k, dx in enumerate(jax.grad(f, tuple(range(len(args))))(*given)):
            found[k] |= bool(np.any(np.isfinite(dx) & (np.asarray(dx) != 0)))
    return found
