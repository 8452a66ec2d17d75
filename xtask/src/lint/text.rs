//! Rules about the files themselves.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

/// A source file beyond it is split, or says why not in a line that begins with [`LONG`].
const MOST_CODE_LINES: usize = 400;
const LONG: &str = "// Longer than others: ";
/// Folders that are made, not written.
const MADE: [&str; 2] = [".git", "target"];
/// Beginnings of paths that exist on one person's machine only. In two parts, so that this file passes.
const HOMES: [(&str, &str); 3] = [("/ho", "me/"), ("/Us", "ers/"), ("/ro", "ot/")];
/// What the head of every script must tell.
const SCRIPT_HEAD: [&str; 5] = ["KEYS[", "ARGV[", "Returns", "Publishes", "Retry"];

/// Checks all files below `root`.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut found = Vec::new();
    for path in files(root)? {
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let bytes = fs::read(&path).with_context(|| format!("cannot read {shown}"))?;
        // What is not UTF-8 is no text.
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        found.extend(findings(&shown, &text));
    }
    if found.is_empty() { Ok(()) } else { bail!("{}", found.join("\n")) }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && !MADE.iter().any(|made| entry.file_name() == *made) {
            files.extend(self::files(&entry.path())?);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// What is wrong with one file.
fn findings(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if HOMES.iter().any(|(start, end)| line.contains(&format!("{start}{end}"))) {
            found.push(format!("{path}:{}: a path of somebody's machine", number + 1));
        }
    }
    let is_explained = text.lines().any(|line| line.starts_with(LONG));
    let is_code = path.ends_with(".rs") && !path.ends_with("/tests.rs");
    if is_code && code_lines(text) > MOST_CODE_LINES && !is_explained {
        found.push(format!("{path}: {} code lines, the most is {MOST_CODE_LINES}", code_lines(text)));
    }
    if path.starts_with("lua/") {
        let head: String = text.lines().take_while(|line| line.starts_with("--")).collect::<Vec<_>>().join("\n");
        let missing: Vec<&str> = SCRIPT_HEAD.iter().filter(|part| !head.contains(**part)).copied().collect();
        if !missing.is_empty() {
            found.push(format!("{path}: the head does not tell {}", missing.join(", ")));
        }
    }
    found
}

/// Lines with code, without blank ones, comments, and the unit tests at the bottom.
fn code_lines(text: &str) -> usize {
    let code = text.lines().map(str::trim).take_while(|line| *line != "mod tests {");
    code.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_folder_in_any_text_is_found_with_its_line() {
        let path = ["/ho", "me/somebody/x"].concat();
        assert_eq!(findings("docs/a.md", &format!("one\nsee {path}")), ["docs/a.md:2: a path of somebody's machine"]);
    }

    #[test]
    fn only_code_counts_for_the_length_of_a_file() {
        let text = "//! Doc.\n\nfn a() {}\n/// Doc.\nfn b() {}\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n";
        assert_eq!(code_lines(text), 3);
        assert_eq!(findings("src/a.rs", &"fn a() {}\n".repeat(401)).len(), 1);
        assert!(findings("src/a.rs", &"fn a() {}\n".repeat(400)).is_empty());
        assert!(findings("src/a/tests.rs", &"fn a() {}\n".repeat(401)).is_empty(), "unit tests in a file of their own");
        let explained = format!("{LONG}one table.\n{}", "fn a() {}\n".repeat(401));
        assert!(findings("src/a.rs", &explained).is_empty());
    }

    #[test]
    fn a_script_whose_head_is_incomplete_is_found() {
        let whole = "-- KEYS[1] a\n-- ARGV[1] b\n-- Returns c\n-- Publishes nothing.  Retry: safe\nreturn 1\n";
        assert!(findings("lua/a.lua", whole).is_empty());
        let found = findings("lua/a.lua", &whole.replace("Retry", ""));
        assert_eq!(found, ["lua/a.lua: the head does not tell Retry"]);
    }
}
