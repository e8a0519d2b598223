//! What the terminal shows that a person reads: sentences in lines of its width, pages of the manual with their
//! headings and tables set, and bars of what is done.

use std::borrow::Cow;
use std::io::{IsTerminal, stdout};

use indicatif::{ProgressBar, ProgressStyle};

use super::table::Table;

/// Columns of a terminal that does not say how many it has.
const USUAL: usize = 80;

/// Columns below which no table has room, and beyond which no eye follows a line.
const READABLE: (usize, usize) = (40, 132);

/// Columns of a line on the terminal that standard output goes to; nothing where that is a file or a pipe.
pub fn width() -> Option<usize> {
    let stdout = stdout();
    let told = || rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| usize::from(size.ws_col));
    let width = stdout.is_terminal().then(told)?;
    Some(if width == 0 { USUAL } else { width }.clamp(READABLE.0, READABLE.1))
}

/// A bar of samples.
pub fn bar(total: u64, doing: &'static str) -> ProgressBar {
    bar_of("{bar:30} {human_pos}/{human_len} samples  {msg}  {eta} left", total, doing)
}

/// A bar of what its template says; whoever drops it clears it, on the way to an error, too.
pub fn bar_of(template: &str, total: u64, message: impl Into<Cow<'static, str>>) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    ProgressBar::new(total).with_style(style).with_message(message)
}

/// A text in lines of at most `width` characters; words that are longer are cut.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    let mut length = 0;
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for (at, part) in letters.chunks(width.max(1)).enumerate() {
            if length > 0 && (at > 0 || length + 1 + part.len() > width) {
                lines.push(std::mem::take(&mut line));
                length = 0;
            }
            if length > 0 {
                line.push(' ');
                length += 1;
            }
            line.extend(part);
            length += part.len();
        }
    }
    lines.push(line);
    lines
}

/// A page of Markdown in lines of at most `width` characters, but for what it shows as it is typed: headings are
/// underlined, tables set, links named by their text.
pub fn page(markdown: &str, width: usize) -> String {
    let (mut text, mut typed) = (String::new(), false);
    let mut rest = markdown.lines().peekable();
    while let Some(line) = rest.next() {
        let mut block = line.trim().to_owned();
        if block.starts_with("```") {
            typed = !typed;
        } else if typed {
            text += &format!("    {line}\n");
        } else if block.starts_with('|') {
            let mut table = Table::new(cells(&block)).within(width);
            while let Some(row) = rest.next_if(|line| line.starts_with('|')) {
                if !row.trim_matches(['|', '-', ':', ' ']).is_empty() {
                    table.row(cells(row));
                }
            }
            text += &table.to_string();
        } else if block.starts_with('#') {
            let heading = block.trim_start_matches('#').trim();
            text += &format!("{heading}\n{}\n", "-".repeat(heading.chars().count()));
        } else if block.is_empty() {
            text.push('\n');
        } else {
            // What goes on in the next line, up to another block.
            while let Some(more) = rest.next_if(|line| !line.trim().is_empty() && !begins(line)) {
                block = format!("{block} {}", more.trim());
            }
            let hang = if block.starts_with("* ") { 2 } else { 0 };
            for (at, line) in wrapped(&without_links(&block), width - hang).iter().enumerate() {
                text += &format!("{:1$}{line}\n", "", if at == 0 { 0 } else { hang });
            }
        }
    }
    text
}

/// Whether a line begins a block of its own.
fn begins(line: &str) -> bool {
    ["* ", "|", "#", "```"].iter().any(|mark| line.trim_start().starts_with(mark))
}

/// The cells of a table's row.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row).replace("\\|", "\u{1}");
    row.split('|').map(|cell| without_links(cell.trim()).replace('\u{1}', "|")).collect()
}

/// A text with links named by their text; where that is not on this page, the address follows.
fn without_links(text: &str) -> String {
    let Some((before, rest)) = text.split_once("](") else { return text.to_owned() };
    let (Some((before, name)), Some((address, behind))) = (before.rsplit_once('['), rest.split_once(')')) else {
        return text.to_owned();
    };
    let address = if address.starts_with('#') { String::new() } else { format!(" ({address})") };
    format!("{before}{name}{address}{}", without_links(behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_fill_lines_and_long_ones_are_cut() {
        assert_eq!(wrapped("a bc  def\nghij", 5), ["a bc", "def", "ghij"]);
        assert_eq!(wrapped("ab abcdefgh i", 4), ["ab", "abcd", "efgh", "i"]);
        assert_eq!(wrapped("", 5), [""]);
    }

    #[test]
    fn a_page_keeps_to_the_width_and_what_is_typed_to_its_lines() {
        assert_eq!(page("a\nb\n\nc\n\n\nd\n", 30), "a b\n\nc\n\n\nd\n");
        let markdown = "# Pages\nSome words of a [paragraph](#pages) that goes\non, and [more](http://a.b).\n\n* one thing \
                        that is long\n  enough\n* two\n\n```toml\nkey   = \"as it is typed, however long that may be\"\n```\n\n\
                        | key | what `a\\|b` says |\n|---|:--|\n| `k` | a sentence that needs more than one line |\n| l | x |\n\nThe\nend.\n";
        let expected = "Pages\n-----\nSome words of a paragraph that\ngoes on, and more\n(http://a.b).\n\n* one thing that \
                        is long\n  enough\n* two\n\n    key   = \"as it is typed, however long that may be\"\n\n  key   what `a|b` \
                        says\n\n  `k`   a sentence that needs\n        more than one line\n\n  l     x\n\nThe end.\n";
        let blank = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        assert_eq!(blank(&page(markdown, 30)), blank(expected));
    }
}
