//! `cargo xtask lint`: format, clippy, documentation, and rules of this repository that no other tool knows.

mod text;

use std::process::Command;

use anyhow::{Result, bail};

use crate::{cargo, process};

/// Runs every check, also after one has failed.
pub(crate) fn run() -> Result<()> {
    let clippy_all = ["clippy", "--locked", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    let clippy_default = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    let clippy_bare = ["clippy", "--locked", "--package", "redlatch", "--no-default-features", "--", "-D", "warnings"];
    let checks: [(&str, Check); 7] = [
        ("text", Box::new(|| text::check(&cargo::root()))),
        ("format", command(cargo::cargo(&["fmt", "--all", "--check"]))),
        ("clippy, all features", command(cargo::cargo(&clippy_all))),
        ("clippy, default features", command(cargo::cargo(&clippy_default))),
        ("clippy, no features", command(cargo::cargo(&clippy_bare))),
        ("documentation", command(documentation(false))),
        ("dependencies", Box::new(dependencies)),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        println!("=== {name}");
        if let Err(error) = check() {
            process::check_interrupt()?;
            println!("{error:#}");
            failed.push(name);
        }
    }
    if failed.is_empty() {
        println!("lint: all checks are clean");
        return Ok(());
    }
    bail!("failed: {}", failed.join("; "))
}

/// `cargo doc` as the lint and the verb `docs` run it.
pub(crate) fn documentation(open: bool) -> Command {
    let mut doc = cargo::cargo(&["doc", "--locked", "--workspace", "--no-deps", "--all-features"]);
    if open {
        doc.arg("--open");
    }
    doc.env("RUSTDOCFLAGS", "-D warnings");
    doc
}

type Check = Box<dyn FnOnce() -> Result<()>>;

fn command(mut command: Command) -> Check {
    Box::new(move || process::run(&mut command))
}

/// Licences, sources and duplicates, by `deny.toml`, where cargo-deny is installed.
fn dependencies() -> Result<()> {
    if process::output_of(&mut cargo::cargo(&["deny", "--version"])).is_err() {
        println!("cargo-deny is not installed: not checked here");
        return Ok(());
    }
    process::run(&mut cargo::cargo(&["deny", "--offline", "--all-features", "check", "bans", "licenses", "sources"]))
}
