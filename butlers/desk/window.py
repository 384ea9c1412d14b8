"""The popup's window: a program of its own, `python -I window.py`, that reads JSON lines and writes JSON lines.

The first line it reads says what to show; a later one `{"close": HOW}`. It writes `{"event": "shown"}`, and at its end
`{"event": "ended", "how": HOW, "text": TEXT}`; `headless` in place of both where there is no display. It imports the
standard library alone, so that it starts at once and nothing of the house is in the process that a person types into.
"""

import json
import queue
import sys
import threading
import time
import tkinter as tk
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final

WIDTH: Final = 500
HEIGHT: Final = 400
MOST_OF_A_SCREEN: Final = 0.8
# How long a message that nobody answers stays, in seconds.
SHOWN_FOR: Final = 30.0
# By this selection of the X server a newer popup of any process takes the place of the one that stands.
PLACE: Final = "_BUTLERS_POPUP"
_LOOK_MS: Final = 40
# How far what is said to the person stands from the left, where their replies are; in pixels.
INDENT: Final = 24
# Who types into another window as this one comes goes on with a key within so many seconds of the last.
TYPES_ON: Final = 0.4


def tell(event: str, **more: str) -> None:
    """Write one line to whoever started us."""
    with suppress(OSError):
        sys.stdout.write(json.dumps({"event": event, **more}) + "\n")
        sys.stdout.flush()


def showable(text: str) -> str:
    """Return the text without halves of characters and NULs, which Tk cannot show."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


class Window:
    """One popup, from the first look for a place to its end."""

    def __init__(self, root: tk.Tk, said: Mapping[str, Any]) -> None:
        self._root = root
        self._said = said
        self._colours = SimpleNamespace(**said["colours"])
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._input: tk.Text | tk.Entry | None = None
        self._over = False
        # When the last key came that was meant for another window; 0 once the person has paused.
        self._typed_on = 0.0
        timeout = said.get("timeout")
        self._until = None if timeout is None else time.monotonic() + float(timeout)
        if not said["waits"]:
            self._until = time.monotonic() + min(SHOWN_FOR, float(timeout or SHOWN_FOR))

    def run(self) -> None:
        """Wait for a place, show the window, and stay until it ends."""
        threading.Thread(target=self._listen, daemon=True).start()
        self._root.withdraw()
        self._build()
        self._root.after(0, self._take_place)
        self._root.after(_LOOK_MS, self._look)
        self._root.mainloop()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)
        self._lines.put(None)

    def _look(self) -> None:
        """Look what we are told, and whether time is over."""
        with suppress(queue.Empty):
            line = self._lines.get_nowait()
            if line is not None:
                self._end(str(json.loads(line)["close"]))
            elif self._said["waits"]:  # nobody is there to be answered
                self._end("superseded")
        if self._until is not None and time.monotonic() >= self._until:
            self._end("timeout")
        if not self._over:
            self._count_down()
            self._root.after(_LOOK_MS, self._look)

    def _take_place(self) -> None:
        """Show the window, unless a question stands: no message takes its place."""
        if not self._said["question"] and self._a_question_stands():
            if not self._said["waits"]:
                self._over = True
                tell("busy")
                self._root.destroy()
            elif not self._over:
                self._root.after(250, self._take_place)
            return
        if self._over:
            return
        kind = "question" if self._said["question"] else "message"
        self._root.selection_handle(lambda at, most: kind[int(at) :][: int(most)], selection=PLACE)
        self._root.selection_own(selection=PLACE, command=lambda: self._end("superseded"))
        self._place()
        self._root.deiconify()
        self._root.attributes("-topmost", True)  # noqa: FBT003  # Tk's way
        self._root.lift()
        self._root.update()
        self._typed_on = time.monotonic()
        (self._input or self._root).focus_force()
        tell("shown")

    def _a_question_stands(self) -> bool:

        try:
            return bool(self._root.tk.call("selection", "get", "-selection", PLACE) == "question")
        except tk.TclError:
            return False

    def _place(self) -> None:
        """Centre the window on the monitor where the pointer is, and let it grow with its text up to most of it."""
        root = self._root
        root.update_idletasks()
        on = self._monitor(*root.winfo_pointerxy())
        width = min(WIDTH, on["width"])
        height = max(min(HEIGHT, on["height"]), min(root.winfo_reqheight(), int(on["height"] * MOST_OF_A_SCREEN)))
        left, top = on["x"] + (on["width"] - width) // 2, on["y"] + (on["height"] - height) // 2
        root.geometry(f"{width}x{height}+{left}+{top}")
        root.minsize(min(320, width), min(240, height))

    def _monitor(self, x: int, y: int) -> Mapping[str, int]:
        """Return the monitor at that place, else the first there is, else the whole screen."""
        whole = {"width": self._root.winfo_screenwidth(), "height": self._root.winfo_screenheight(), "x": 0, "y": 0}
        known = [*self._said["monitors"], whole]
        inside = (m for m in known if m["x"] <= x < m["x"] + m["width"] and m["y"] <= y < m["y"] + m["height"])
        return next(inside, known[0])

    def _build(self) -> None:
        root, colours = self._root, self._colours
        root.title(showable(str(self._said["title"]))[:200])
        root.configure(background=colours.paper, padx=14, pady=12)
        root.protocol("WM_DELETE_WINDOW", lambda: self._end("dismissed"))
        root.bind("<Escape>", lambda _: self._end("cancelled"))
        self._build_buttons()
        if self._said["waits"]:
            self._build_input()
        message = showable(str(self._said["message"]))
        rows = sum(1 + len(line) // 55 for line in message.split("\n"))
        self._text("message", [(message, "theirs")], max(3, min(rows, 60)))
        if history := list(_told(self._said["history"])):
            self._text("history", history, 5, end=True)

    def _build_buttons(self) -> None:

        colours = self._colours
        row = tk.Frame(self._root, background=colours.paper)
        row.pack(side="bottom", fill="x", pady=(10, 0))
        self._left = tk.Label(row, background=colours.paper, foreground=colours.soft, text="")
        self._left.pack(side="left")
        self._refused = tk.Label(row, background=colours.paper, foreground=colours.ink, text="")
        self._refused.pack(side="left")
        waits = self._said["waits"]
        cancel = tk.Button(row, text="Cancel" if waits else "Close", command=lambda: self._end("cancelled"))
        send = tk.Button(row, text="Send", command=self._submit)
        for button, paper, ink in ((cancel, colours.well, colours.ink), (send, colours.accent, colours.accent_ink)):
            button.configure(
                background=paper, foreground=ink, activebackground=paper, activeforeground=ink, padx=14, pady=4
            )
        if waits:
            send.pack(side="right")
        cancel.pack(side="right", padx=8)

    def _build_input(self) -> None:
        """Put up where the person types; a secret is one line of dots, and dots are what is copied from it."""
        colours, font = self._colours, "TkTextFont"
        secret = self._said["sensitive"]
        text = tk.Text(self._root, height=4, wrap="word", undo=True, font=font, padx=8, pady=6)
        self._input = typed = tk.Entry(self._root, show="\u2022", font=font) if secret else text
        typed.configure(
            background=colours.well,
            foreground=colours.ink,
            insertbackground=colours.ink,
            selectbackground=colours.accent,
            selectforeground=colours.accent_ink,
            highlightcolor=colours.accent,
        )
        typed.pack(side="bottom", fill="x", pady=(10, 0))
        for key in ("<Return>", "<KP_Enter>"):
            typed.bind(key, lambda _: self._submit())
        for key in ("<Shift-Return>", "<Shift-KP_Enter>"):
            typed.bind(key, self._break_line)
        typed.bind("<Control-a>", _select_all)
        typed.bindtags(("TypesOn", *typed.bindtags()))
        typed.bind_class("TypesOn", "<KeyPress>", self._drop_typed_on)

    def _drop_typed_on(self, _: object) -> str | None:
        """Drop what is typed on from another window, until the person pauses: it may be a password."""
        now = time.monotonic()
        self._typed_on = now if now - self._typed_on < TYPES_ON else 0.0
        return "break" if self._typed_on else None

    def _break_line(self, _: object) -> str:
        if isinstance(self._input, tk.Text):
            self._input.insert("insert", "\n")
            self._input.see("insert")
        return "break"

    def _text(self, name: str, pieces: Sequence[tuple[str, str]], rows: int, *, end: bool = False) -> None:
        """Put up a text to read, in pieces with their tags: it scrolls, and can be marked and copied."""
        colours = self._colours
        frame = tk.Frame(self._root, background=colours.paper, name=name)
        shown = tk.Text(frame, height=rows, wrap="word", borderwidth=0, highlightthickness=0, font="TkTextFont")
        shown.configure(background=colours.paper, foreground=colours.soft if end else colours.ink, padx=4)
        shown.configure(selectbackground=colours.accent, selectforeground=colours.accent_ink)
        bar = tk.Scrollbar(frame, command=shown.yview)
        shown.configure(yscrollcommand=bar.set)
        bar.pack(side="right", fill="y")
        shown.pack(side="left", fill="both", expand=True)
        shown.tag_configure("theirs", lmargin1=INDENT, lmargin2=INDENT)
        shown.tag_configure("own", foreground=colours.ink)
        for text, tag in pieces:
            shown.insert("end", text, tag)
        shown.configure(state="disabled")
        shown.bind("<Button-1>", lambda _: shown.focus_set())
        shown.bind("<Control-a>", _select_all)
        if end:
            shown.see("end")
        frame.pack(side="bottom" if end else "top", fill="both", expand=not end, pady=(8, 0) if end else 0)

    def _count_down(self) -> None:
        if self._until is not None and self._said["waits"]:
            left = max(0, round(self._until - time.monotonic()))
            self._left.configure(text=f"{left} s left")

    def _submit(self) -> str:
        typed = self._input
        text = typed.get("1.0", "end-1c") if isinstance(typed, tk.Text) else typed.get() if typed else ""
        longest = self._said["longest"]
        if longest is not None and len(text.strip()) > longest:
            self._refused.configure(text=f"Not sent: more than {longest:,} characters.")
        else:
            self._end("submitted" if text.strip() else "empty", text)
        return "break"

    def _end(self, how: str, text: str = "") -> None:
        if not self._over:
            self._over = True
            tell("ended", how=how, text=text)
            self._root.destroy()


def _told(history: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield what was said and replied before, each with whose it is.

    INVARIANT: no row of another's words begins where the person's do, here or in the message above.
    """
    for n, (said, reply) in enumerate(history):
        yield ("\n\n" if n else "") + showable(str(said)), "theirs"
        if reply:
            yield ("\n" if said else "") + f"> {showable(str(reply))}", "own"


def _select_all(pressed: "tk.Event[tk.Text | tk.Entry]") -> str:
    widget = pressed.widget
    # The end of a text is behind a line break that nobody typed.
    widget.tag_add("sel", "1.0", "end-1c") if isinstance(widget, tk.Text) else widget.select_range(0, "end")
    return "break"


def main() -> None:
    """Show one popup as the first line says."""
    said = json.loads(sys.stdin.readline())
    try:
        root = tk.Tk(className="Butlers")
    except tk.TclError as refused:
        return tell("headless", why=str(refused))
    return Window(root, said).run()


if __name__ == "__main__":
    main()
