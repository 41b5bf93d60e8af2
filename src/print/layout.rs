//! Laying out text in lines of a given width, as jax's pretty-printer does.
//!
//! jax builds a document of texts, breaks, groups and indentation (Wadler 1998, "A prettier printer";
//! Lindig 2000, "Strictly pretty") and lays it out by two rules: a group whose text fits on the rest
//! of the line is printed on it, with its breaks as their text; in one that does not, its own breaks
//! are line ends. Here no document is built. A group is a function that writes: it first writes as
//! if it fitted, and where it passes the end of the line, that is taken back and it writes once more.

use std::rc::Rc;

/// Colours and intensity of text, as codes of ANSI terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    foreground: u8,
    intensity: u8,
}

impl Style {
    /// What text has by itself.
    pub(super) const DEFAULT: Self = Self { foreground: 39, intensity: 22 };
    /// What `lambda`, `let` and `in` have.
    pub(super) const KEYWORD: Self = Self { foreground: 34, intensity: 1 };
    /// What types have.
    pub(super) const TYPE: Self = Self { foreground: 35, intensity: 22 };
    /// What annotations have.
    const ANNOTATION: Self = Self { foreground: 39, intensity: 2 };
}

/// How a text is laid out.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many bytes a line should have at most; with less than none, no group fits.
    pub width: i64,
    /// Whether there are codes for colours.
    pub colored: bool,
    /// Whether each line begins and ends in the default style.
    pub separable_lines: bool,
    /// What comes between a line and its annotation.
    pub annotation_prefix: Box<str>,
}

impl Default for Options {
    /// What jax has where nobody says otherwise.
    fn default() -> Self {
        let annotation_prefix = " # ".into();
        Self { width: 80, colored: false, separable_lines: false, annotation_prefix }
    }
}

/// Why writing stopped.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop<E> {
    /// The group does not fit on the line.
    Overflow,
    /// All that is wanted is written.
    Done,
    /// The embedding failed.
    Failed(E),
}

impl<E> From<E> for Stop<E> {
    fn from(error: E) -> Self {
        Self::Failed(error)
    }
}

/// Whether what was to be written is.
pub(super) type Written<E> = Result<(), Stop<E>>;

/// A line with annotations.
struct Annotated {
    /// Where it ends.
    end: usize,
    width: usize,
    annotations: Vec<Rc<str>>,
}

/// Text that is being laid out.
pub(super) struct Layout {
    options: Options,
    /// The width, where there is any.
    limit: Option<usize>,
    out: String,
    column: usize,
    indent: usize,
    /// Whether breaks are written as their text: a group that may fit is being written.
    is_flat: bool,
    /// Whether nothing is written for now.
    is_muted: bool,
    style: Style,
    annotations: Vec<Rc<str>>,
    annotated: Vec<Annotated>,
    /// The width of the widest line.
    widest: usize,
}

/// What was being written when an excerpt began.
pub(super) struct Outer {
    out: String,
    column: usize,
    indent: usize,
    is_flat: bool,
    is_muted: bool,
}

/// A place to go back to.
#[derive(Clone, Copy)]
pub(super) struct Checkpoint {
    written: usize,
    column: usize,
    indent: usize,
    style: Style,
    annotations: usize,
}

impl Layout {
    /// An empty text.
    pub(super) fn new(options: Options) -> Self {
        Self {
            limit: usize::try_from(options.width).ok(),
            options,
            out: String::new(),
            column: 0,
            indent: 0,
            is_flat: false,
            is_muted: false,
            style: Style::DEFAULT,
            annotations: Vec::new(),
            annotated: Vec::new(),
            widest: 0,
        }
    }

    fn set_style(&mut self, style: Style) {
        if !self.options.colored || self.style == style {
            return;
        }
        self.out.push_str("\x1b[");
        let mut separator = "";
        for (own, new) in
            [(self.style.foreground, style.foreground), (self.style.intensity, style.intensity)]
        {
            if own != new {
                self.out.push_str(separator);
                self.out.push_str(&new.to_string());
                separator = ";";
            }
        }
        self.out.push('m');
        self.style = style;
    }

    /// Writes text in a style.
    pub(super) fn styled<E>(&mut self, text: &str, style: Style) -> Written<E> {
        if self.is_muted {
            return Ok(());
        }
        self.set_style(style);
        self.out.push_str(text);
        self.column += text.len();
        if self.is_flat && !self.has_room() {
            return Err(Stop::Overflow);
        }
        Ok(())
    }

    /// Writes text.
    pub(super) fn text<E>(&mut self, text: &str) -> Written<E> {
        self.styled(text, Style::DEFAULT)
    }

    /// Puts a note at the end of the line that is being written.
    pub(super) fn annotate(&mut self, note: Rc<str>) {
        if !self.is_muted {
            self.annotations.push(note);
        }
    }

    /// Ends the line, or writes `text` in a group that fits.
    pub(super) fn line_break<E>(&mut self, text: &str) -> Written<E> {
        if self.is_flat || self.is_muted {
            return self.text(text);
        }
        self.end_line();
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', self.indent));
        self.column = self.indent;
        Ok(())
    }

    fn end_line(&mut self) {
        if self.options.separable_lines || !self.annotations.is_empty() {
            self.set_style(Style::DEFAULT);
        }
        self.widest = self.widest.max(self.column);
        if !self.annotations.is_empty() {
            self.annotated.push(Annotated {
                end: self.out.len(),
                width: self.column,
                annotations: std::mem::take(&mut self.annotations),
            });
        }
    }

    /// Indents the lines that begin from now on by as much more.
    pub(super) fn indent(&mut self, by: usize) {
        self.indent += by;
    }

    /// Takes indentation back.
    pub(super) fn dedent(&mut self, by: usize) {
        self.indent -= by;
    }

    /// Whether anything is written from now on, until the answer is given back.
    pub(super) fn mute(&mut self, is_muted: bool) -> bool {
        std::mem::replace(&mut self.is_muted, is_muted)
    }

    /// Whether nothing is written.
    pub(super) fn is_muted(&self) -> bool {
        self.is_muted
    }

    /// Begins a text that stands by itself.
    pub(super) fn begin_excerpt(&mut self) -> Outer {
        let Self { out, column, indent, is_flat, is_muted, .. } = self;
        Outer {
            out: std::mem::take(out),
            column: std::mem::take(column),
            indent: std::mem::take(indent),
            is_flat: std::mem::take(is_flat),
            is_muted: std::mem::take(is_muted),
        }
    }

    /// The text that was begun; what was written before is gone on with.
    pub(super) fn end_excerpt(&mut self, outer: Outer) -> String {
        let Outer { out, column, indent, is_flat, is_muted } = outer;
        (self.column, self.indent) = (column, indent);
        (self.is_flat, self.is_muted) = (is_flat, is_muted);
        std::mem::replace(&mut self.out, out)
    }

    /// Begins a group. None where it is in one that fits, and so does this; else a place to go back
    /// to, and until then breaks are their text.
    pub(super) fn try_flat(&mut self) -> Option<Checkpoint> {
        if self.is_flat || self.is_muted {
            return None;
        }
        self.is_flat = true;
        Some(Checkpoint {
            written: self.out.len(),
            column: self.column,
            indent: self.indent,
            style: self.style,
            annotations: self.annotations.len(),
        })
    }

    /// Whether a line that is this long may be written on.
    pub(super) fn has_room(&self) -> bool {
        self.limit.is_some_and(|limit| self.column <= limit)
    }

    /// Ends the group that began at a checkpoint, which fits.
    pub(super) fn fitted(&mut self) {
        self.is_flat = false;
    }

    /// Takes back what was written since the checkpoint of a group that does not fit.
    pub(super) fn take_back(&mut self, to: Checkpoint) {
        let Checkpoint { written, column, indent, style, annotations } = to;
        self.out.truncate(written);
        (self.column, self.indent, self.style, self.is_flat) = (column, indent, style, false);
        self.annotations.truncate(annotations);
    }

    /// The text, its annotations behind the widest line.
    pub(super) fn finish(mut self) -> String {
        self.end_line();
        if self.annotated.is_empty() {
            self.set_style(Style::DEFAULT);
            return self.out;
        }
        let text = std::mem::take(&mut self.out);
        let lines = std::mem::take(&mut self.annotated);
        let mut from = 0;
        // Styles within lines were written as they follow one another, without the annotations.
        for Annotated { end, width, annotations } in lines {
            self.out.push_str(&text[from..end]);
            from = end;
            self.style = Style::DEFAULT;
            for (position, annotation) in annotations.iter().enumerate() {
                if position > 0 {
                    self.out.push('\n');
                }
                self.set_style(Style::ANNOTATION);
                let padding = self.widest - if position == 0 { width } else { 0 };
                self.out.extend(std::iter::repeat_n(' ', padding));
                self.out.push_str(&self.options.annotation_prefix);
                self.out.push_str(annotation);
                self.set_style(Style::DEFAULT);
            }
        }
        self.out.push_str(&text[from..]);
        self.out
    }
}
