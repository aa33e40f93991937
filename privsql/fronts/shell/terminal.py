"""The input line: keys, history, colours and the completion menu."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples, split_lines
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from privsql.errors import printable
from privsql.fronts.shell import vocabulary
from privsql.fronts.shell.completion import offers
from privsql.fronts.shell.describe import Told
from privsql.fronts.shell.input import Word, complete, words

PROMPT = "privsql> "
CONTINUED = "      -> "
_FUNCTIONS = frozenset(vocabulary.FUNCTIONS)
_STYLE = Style.from_dict(
    {
        "keyword": "ansiblue bold",
        "function": "ansicyan",
        "string": "ansigreen",
        "number": "ansimagenta",
        "comment": "ansibrightblack italic",
        "command": "ansiyellow",
        "continued": "ansibrightblack",
    }
)


def history_file() -> Path | None:
    """Where statements are remembered, readable by their author alone; None where it cannot be.

    XDG's state folder and not the current one: statements tell what somebody is after.
    """
    try:
        base = os.environ.get("XDG_STATE_HOME", "")
        home = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state"
        folder = home / "privsql"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "shell_history"
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)  # it may have been there before
    except (OSError, RuntimeError):
        return None
    return path


class Colours(Lexer):
    """Words of SQL in colour."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """Style the lines of a text."""
        if document.text.lstrip().startswith("\\"):
            found: StyleAndTextTuples = [("class:command", document.text)]
        else:
            found = [(style(word), word.text) for word in words(document.text)]
        lines = list(split_lines(found))
        return lambda number: lines[number] if number < len(lines) else []


def style(word: Word) -> str:
    """The class of a word's look.

    >>> [style(word) for word in words("SELECT count 1")][::2]
    ['class:keyword', 'class:function', 'class:number']
    """
    if word.kind in ("string", "number", "comment"):
        return f"class:{word.kind}"
    if word.kind == "word":
        if word.plain in vocabulary.COLOURED:
            return "class:keyword"
        if word.plain in _FUNCTIONS:
            return "class:function"
    return ""


class Offers(Completer):
    """What Tab offers, as prompt_toolkit wants it."""

    def __init__(self, told: Told, commands: tuple[str, ...]) -> None:
        self._told = told
        self._commands = commands

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        """Completions at the cursor."""
        before, after = document.text_before_cursor, document.text_after_cursor
        for offer in offers(before, after, self._told, self._commands):
            shown = printable(offer.text)
            yield Completion(offer.text, -offer.replaces, display=shown, display_meta=offer.kind)


class Terminal:
    """Asks for statements on a terminal."""

    def __init__(
        self, told: Told, commands: tuple[str, ...], coloured: bool, history: Path | None
    ) -> None:
        kept: History = InMemoryHistory() if history is None else FileHistory(str(history))
        self._prompt: PromptSession[str] = PromptSession(
            history=kept,
            completer=Offers(told, commands),
            complete_while_typing=False,
            lexer=Colours() if coloured else None,
            style=_STYLE if coloured else None,
            color_depth=None if coloured else ColorDepth.DEPTH_1_BIT,
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation=lambda width, line, wrap: [("class:continued", CONTINUED)],
            enable_open_in_editor=True,  # Ctrl-X Ctrl-E
            tempfile_suffix=".sql",
        )

    def ask(self, begun: str = "") -> str:
        """A text that Enter sent; EOFError for Ctrl-D, KeyboardInterrupt for Ctrl-C."""
        return str(self._prompt.prompt(PROMPT, default=begun))


def _keys() -> KeyBindings:
    """Enter sends what is complete; Alt-Enter always begins another line."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion:
            buffer.complete_state = None  # takes what the menu shows
        elif complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
