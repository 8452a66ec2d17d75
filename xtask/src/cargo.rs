//! Cargo, started by the xtask: builds, and where the built executables are.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process;

/// The folder of the workspace's `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    // At run time cargo says where the package is; the path noted at compile time serves a binary started by hand.
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let package = PathBuf::from(package);
    package.parent().map_or_else(|| package.clone(), Path::to_path_buf)
}

/// The folder that cargo builds into.
pub(crate) fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `cargo ARGS` in the workspace, with the lock file as it is.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    // They describe the xtask's own package and would reach tests that look at them.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// An executable that cargo has built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Artifact {
    pub(crate) package: String,
    /// Folder of the package's manifest: tests run there.
    pub(crate) folder: PathBuf,
    /// Name of the binary, test or library.
    pub(crate) target: String,
    pub(crate) kind: Kind,
    pub(crate) executable: PathBuf,
}

/// What an executable is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Unit tests inside a library or a binary.
    Unit,
    /// A file in `tests/`.
    Test,
    /// A program.
    Program,
}

/// Runs a cargo command that builds, and lists what came out. `args` starts with the cargo command.
pub(crate) fn build(args: &[&str]) -> Result<Vec<Artifact>> {
    let mut command = cargo(args);
    command.args(["--locked", "--message-format=json-render-diagnostics"]);
    let mut artifacts = Vec::new();
    let mut unread = None;
    let ended = process::run_lines(&mut command, process::NO_LIMIT, |line| match artifact(line) {
        Ok(found) => artifacts.extend(found),
        Err(error) => unread = Some(error),
    })?;
    if !ended.is_success() {
        bail!("`{}` failed: {ended}", process::shown(&command));
    }
    match unread {
        Some(error) => Err(error),
        None => Ok(artifacts),
    }
}

/// The built program of that name.
pub(crate) fn program<'a>(artifacts: &'a [Artifact], name: &str) -> Result<&'a Path> {
    let found = artifacts.iter().find(|artifact| artifact.kind == Kind::Program && artifact.target == name);
    let found = found.with_context(|| format!("cargo built no program `{name}`"))?;
    Ok(&found.executable)
}

/// What one line of cargo's JSON output tells about an executable.
fn artifact(line: &str) -> Result<Option<Artifact>> {
    let message: Value = match serde_json::from_str(line) {
        Ok(message) => message,
        // Build scripts and `println!` of proc macros may get in between.
        Err(_) => return Ok(None),
    };
    if message["reason"] != "compiler-artifact" {
        return Ok(None);
    }
    let Some(executable) = message["executable"].as_str() else {
        return Ok(None);
    };
    let text = |value: &Value, what: &str| {
        value.as_str().map(str::to_owned).with_context(|| format!("cargo's JSON has no {what}: {line}"))
    };
    let manifest = PathBuf::from(text(&message["manifest_path"], "manifest_path")?);
    let is_kind =
        |kind: &str| message["target"]["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == kind));
    let kind = if is_kind("test") {
        Kind::Test
    } else if message["profile"]["test"] == true {
        Kind::Unit
    } else if is_kind("bin") {
        Kind::Program
    } else {
        // Examples and benches are built, and that is their check.
        return Ok(None);
    };
    Ok(Some(Artifact {
        package: package_name(&text(&message["package_id"], "package_id")?).to_owned(),
        folder: manifest.parent().map(Path::to_path_buf).unwrap_or_default(),
        target: text(&message["target"]["name"], "target name")?,
        kind,
        executable: executable.into(),
    }))
}

/// The name in a package id: `path+file:///a/b#name@1.0.0`, or `path+file:///a/name#1.0.0` when the folder has that name.
fn package_name(id: &str) -> &str {
    let (url, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => url.rsplit('/').next().unwrap_or(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_name_is_read_from_both_forms_of_id() {
        assert_eq!(package_name("path+file:///a/main#redlatch@0.1.0"), "redlatch");
        assert_eq!(package_name("path+file:///a/main/xtask#0.1.0"), "xtask");
    }

    fn line(kind: &str, test: bool, executable: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"path+file:///a/cli#redlatch-cli@0.1.0",
            "manifest_path":"/a/cli/Cargo.toml","target":{{"kind":["{kind}"],"name":"redlatch"}},
            "profile":{{"test":{test}}},"executable":{executable}}}"#
        )
    }

    #[test]
    fn executables_are_told_apart_by_kind() {
        let kind = |text: String| artifact(&text).unwrap().map(|artifact| artifact.kind);
        assert_eq!(kind(line("bin", false, "\"/t/redlatch\"")), Some(Kind::Program));
        assert_eq!(kind(line("bin", true, "\"/t/redlatch\"")), Some(Kind::Unit));
        assert_eq!(kind(line("lib", true, "\"/t/redlatch\"")), Some(Kind::Unit));
        assert_eq!(kind(line("test", true, "\"/t/redlatch\"")), Some(Kind::Test));
        assert_eq!(kind(line("bench", true, "\"/t/redlatch\"")), Some(Kind::Unit));
        assert_eq!(kind(line("lib", false, "null")), None);
        assert_eq!(kind("a line of a build script".to_owned()), None);
    }

    #[test]
    fn the_folder_of_the_package_is_kept() {
        let found = artifact(&line("bin", false, "\"/t/redlatch\"")).unwrap().unwrap();
        assert_eq!((found.package.as_str(), found.folder.as_path()), ("redlatch-cli", Path::new("/a/cli")));
    }
}
