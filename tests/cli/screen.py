"""screen.py - a terminal emulator for tests: as much of a VT100 as `sluice top` uses. Any other
escape sequence, and any control character in the output, is an error."""
import re
import unicodedata


class Screen:
    def __init__(self, rows, columns):
        self.alternate = False  # the alternate screen is shown
        self.cursor_visible = True
        self.wraps = True
        self.colours = set()  # that were used
        self.rest = b""
        self.resize(rows, columns)
        self.clips = False  # output for an earlier size may follow a change of the size

    def resize(self, rows, columns):
        self.clips = True
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0

    def feed(self, data):
        """Draw output. An incomplete sequence at its end waits for the next call."""
        self.rest += data
        try:
            text, kept = self.rest.decode("utf-8"), b""
        except UnicodeDecodeError as e:
            text, kept = self.rest[:e.start].decode("utf-8"), self.rest[e.start:]
            if len(kept) > 3:
                raise AssertionError("this is not UTF-8: %r" % kept)
        at = 0
        while at < len(text):
            if text[at] != "\033":
                self.put(text[at])
                at += 1
                continue
            m = re.match(r"\033\[(\??)([\d;]*)([a-zA-Z])", text[at:])
            if m:
                self.control(*m.groups())
                at += m.end()
            elif re.fullmatch(r"\033(\[\??[\d;]*)?", text[at:]):
                break
            else:
                raise AssertionError("unknown sequence %r" % text[at:at + 10])
        self.rest = text[at:].encode() + kept

    def put(self, c):
        if c in "\r\n":
            self.column = 0 if c == "\r" else self.column
            self.row += c == "\n"
            self.scroll()
            return
        if ord(c) < 0x20 or 0x7f <= ord(c) < 0xa0:
            raise AssertionError("control character %r" % c)
        if unicodedata.combining(c):
            return
        width = 2 if unicodedata.east_asian_width(c) in "WF" else 1
        if self.column + width > self.columns and self.wraps:
            self.row, self.column = self.row + 1, 0
            self.scroll()
        if self.column + width > self.columns and self.clips:
            return
        if self.column + width > self.columns:
            raise AssertionError("row %d is too long, at %r" % (self.row, c))
        self.cells[self.row][self.column] = c
        if width == 2:
            self.cells[self.row][self.column + 1] = ""
        self.column += width

    def scroll(self):
        if self.row == self.rows:
            self.row -= 1
            self.cells = self.cells[1:] + [[" "] * self.columns]

    def control(self, private, numbers, letter):
        n = [int(x) for x in numbers.split(";") if x]
        if private:
            on = letter == "h"
            if n == [1049]:
                self.alternate = on
            elif n == [25]:
                self.cursor_visible = on
            elif n == [7]:
                self.wraps = on
            else:
                raise AssertionError("unknown mode %r" % n)
        elif letter == "H":
            self.row, self.column = (n[0] - 1, n[1] - 1) if n else (0, 0)
            if self.clips:
                self.row, self.column = min(self.row, self.rows - 1), min(self.column, self.columns)
            if not (self.row < self.rows and self.column < self.columns):
                raise AssertionError("the cursor leaves the screen: %r" % n)
        elif letter == "G":
            self.column = n[0] - 1
        elif letter == "K":
            self.cells[self.row][self.column:] = [" "] * (self.columns - self.column)
        elif letter == "J":
            first = 0 if n == [2] else self.row + (self.column > 0)
            for row in range(first, self.rows):
                self.cells[row] = [" "] * self.columns
            if n != [2]:
                self.cells[self.row][self.column:] = [" "] * (self.columns - self.column)
        elif letter == "m":
            self.colours |= {x for x in n if 30 <= x < 50}
        else:
            raise AssertionError("unknown sequence %r" % (numbers + letter))

    @property
    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]

    @property
    def text(self):
        return "\n".join(self.lines)
