"""The one place through which text from elsewhere goes before it is shown."""

from __future__ import annotations


def printable(text: str) -> str:
    """A text whose characters a terminal shows, and does not obey.

    Names in files, keys of dicts and hosts may hold control characters, which move the cursor, rename the
    window or hide what stands before them, and marks that turn the direction of writing round. These become
    escapes as in Python's literals; ends of lines and tabs stay.

    Examples:
        >>> printable("w\\x1b[31m"), printable("weights – π")
        ('w\\\\x1b[31m', 'weights – π')
    """
    if text.isprintable():
        return text
    return "".join([sign if sign.isprintable() or sign in "\n\t" else _escaped(sign) for sign in text])


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode()
