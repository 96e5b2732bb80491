"""Pictures of the recipes, drawn with matplotlib.

Text and axes are drawn in ``INK``, which a page may replace by its own colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stopgrad.base.namespaces import require
from stopgrad.tools.recipes.result import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#010203"
FAINT = "#818283"
COLOURS = (
    "#0a84c6",
    "#d1495b",
    "#2a9d6f",
    "#e59500",
    "#7a5195",
    "#8c6d46",
    "#e377c2",
    "#4d6a8a",
    "#bcae20",
    "#17a2b8",
)

_STYLE = {
    "font.size": 9,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "image.cmap": "gray_r",
    "figure.constrained_layout.use": True,
}


def figure(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = (4.6, 3.0), **options: object
) -> tuple[Any, np.ndarray[Any, Any]]:
    """A figure with a grid of axes, outside of pyplot's global state."""
    matplotlib = require("matplotlib", "drawing", "tour")
    with matplotlib.rc_context(_STYLE):
        fig = require("matplotlib.figure", "drawing", "tour").Figure(figsize=size)
        axes = fig.subplots(rows, columns, squeeze=False, **options)
    fig.patch.set_alpha(0.0)
    for ax in axes.flat:
        ax.patch.set_alpha(0.0)
    return fig, axes


def curves(
    caption: str,
    lines: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    xs: np.ndarray[Any, Any] | range | list[int] | None = None,
    ylim: tuple[float, float] | None = None,
    log: bool = False,
    paired: bool = False,
) -> Picture:
    """Lines over a common axis, each with its name; *paired* lines share a colour by twos."""
    fig, axes = figure()
    ax = axes[0, 0]
    for i, (name, values) in enumerate(lines.items()):
        style = "-" if i % 2 == 0 else "--"
        ax.plot(
            range(len(values)) if xs is None else xs,
            values,
            style,
            label=name,
            color=COLOURS[i // 2 if paired else i],
            linewidth=1.8,
        )
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if log:
        ax.set_yscale("log")
    if ylim:
        ax.set_ylim(*ylim)
    _legend(ax)
    return Picture(caption, fig)


def _legend(ax: Axes) -> None:
    matplotlib = require("matplotlib", "drawing", "tour")
    with matplotlib.rc_context(_STYLE):
        ax.legend()


def residue(values: np.ndarray[Any, Any], caption: str) -> Picture:
    """A histogram of sizes on a logarithmic axis; zeros are counted in the legend."""
    fig, axes = figure()
    ax = axes[0, 0]
    largest = values.max(axis=-1)
    seen = largest[largest > 0]
    low, high = -11, np.ceil(np.log10(seen.max()))
    ax.hist(
        np.maximum(seen, 10.0**low),
        bins=np.logspace(low, high, 40).tolist(),
        color=COLOURS[1],
        label=f"not zero: {len(seen)} rows",
    )
    ax.plot([], [], " ", label=f"zero by luck: {len(largest) - len(seen)} rows")
    ax.set(xscale="log", xlabel="largest residue of a row, |gradient without - with the stop|", ylabel="rows")
    _legend(ax)
    return Picture(caption, fig)


def images(
    caption: str,
    rows: Mapping[str, np.ndarray[Any, Any]],
    *,
    titles: Mapping[str, Sequence[str]] | None = None,
    symmetric: Sequence[str] = (),
) -> Picture:
    """Rows of square grey images, each row with its name.

    Rows in *symmetric* are drawn in red and blue around zero.
    """
    count = max(len(values) for values in rows.values())
    fig, axes = figure(len(rows), count, size=(0.62 * count + 1.2, 0.78 * len(rows)))
    for i, (name, values) in enumerate(rows.items()):
        for j in range(count):
            ax = axes[i, j]
            ax.set(xticks=[], yticks=[])
            for spine in ax.spines.values():
                spine.set_visible(False)
            if j >= len(values):
                continue
            side = int(np.sqrt(values[j].size))
            image = np.reshape(values[j], (side, side))
            if name in symmetric:
                bound = np.abs(values).max()
                ax.imshow(image, cmap="RdBu", vmin=-bound, vmax=bound)
            else:
                ax.imshow(
                    image, cmap="gray_r", vmin=min(0.0, float(image.min())), vmax=max(1.0, float(image.max()))
                )
            if titles and name in titles:
                ax.set_title(titles[name][j], fontsize=7.5, pad=1.5, color=INK)
        axes[i, 0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8.5, color=INK)
    return Picture(caption, fig, wide=True)


def scatter(ax: Axes, points: np.ndarray[Any, Any], classes: np.ndarray[Any, Any], size: float = 9.0) -> None:
    """Points in the colours of their classes."""
    ax.scatter(
        points[:, 0], points[:, 1], c=[COLOURS[c % len(COLOURS)] for c in classes], s=size, linewidths=0
    )


def ellipse(
    ax: Axes, mean: np.ndarray[Any, Any], covariance: np.ndarray[Any, Any], colour: str = INK
) -> None:
    """The ellipse of a two-dimensional Gaussian at two standard deviations."""
    values, vectors = np.linalg.eigh(covariance)
    angle = np.linspace(0, 2 * np.pi, 100)
    outline = mean[:, None] + 2 * vectors @ (
        np.sqrt(values)[:, None] * np.stack([np.cos(angle), np.sin(angle)])
    )
    ax.plot(*outline, color=colour, linewidth=1.3)
