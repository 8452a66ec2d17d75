//! The tools: where they are, whether they are new enough, and what their packages are called.

use std::{
    env, fmt, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::process;

/// The Java peer is compiled for this release.
const OLDEST_JDK: u32 = 17;
/// The oldest server that the crate supports.
const OLDEST_REDIS: (u32, u32) = (6, 2);

/// Something that the tests start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Tool {
    /// A server for each test binary.
    RedisServer,
    /// Compiles and runs the Java peer.
    Jdk,
    /// Builds the Java peer.
    Maven,
    /// Makes network namespaces; Linux only.
    Ip,
    /// Stops and continues processes: as a program, which small images lack.
    Kill,
}

impl Tool {
    /// Why the tool cannot be used, if so.
    pub(crate) fn check(self) -> Result<(), String> {
        match self {
            Tool::RedisServer => check_redis(),
            Tool::Jdk => check_jdk(),
            Tool::Maven => find("mvn").map(drop),
            Tool::Ip if cfg!(target_os = "linux") => find("ip").map(drop),
            Tool::Ip => Ok(()),
            Tool::Kill => find("kill").map(drop),
        }
    }

    /// What the package manager calls it.
    pub(crate) fn package(self, manager: Manager) -> &'static str {
        match (self, manager) {
            (Tool::RedisServer, Manager::Apt) => "redis-server",
            (Tool::RedisServer, _) => "redis",
            (Tool::Jdk, Manager::Apt) => "default-jdk-headless",
            (Tool::Jdk, Manager::Dnf) => "java-devel",
            (Tool::Jdk, Manager::Pacman) => "jdk-openjdk",
            (Tool::Jdk, Manager::Brew) => "openjdk",
            (Tool::Maven, _) => "maven",
            (Tool::Ip, Manager::Dnf) => "iproute",
            (Tool::Ip, _) => "iproute2",
            (Tool::Kill, Manager::Apt) => "procps",
            (Tool::Kill, _) => "util-linux",
        }
    }
}

/// A program that installs packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manager {
    Apt,
    Brew,
    Dnf,
    Pacman,
}

impl Manager {
    pub(crate) const ALL: [Manager; 4] = [Manager::Apt, Manager::Dnf, Manager::Pacman, Manager::Brew];

    pub(crate) fn program(self) -> &'static str {
        match self {
            Manager::Apt => "apt-get",
            Manager::Brew => "brew",
            Manager::Dnf => "dnf",
            Manager::Pacman => "pacman",
        }
    }

    /// The command, up to the packages.
    pub(crate) fn install(self) -> &'static str {
        match self {
            Manager::Apt => "apt-get update && apt-get install -y",
            Manager::Brew => "brew install",
            Manager::Dnf => "dnf install -y",
            Manager::Pacman => "pacman -S --needed",
        }
    }

    /// Whether installing is for root alone.
    pub(crate) fn needs_root(self) -> bool {
        self != Manager::Brew
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tool::RedisServer => write!(f, "redis-server ({}.{} or newer)", OLDEST_REDIS.0, OLDEST_REDIS.1),
            Tool::Jdk => write!(f, "a JDK ({OLDEST_JDK} or newer)"),
            Tool::Maven => f.write_str("Maven (mvn)"),
            Tool::Ip => f.write_str("iproute2 (ip)"),
            Tool::Kill => f.write_str("the program kill"),
        }
    }
}

/// Where a program is, by the PATH and the folders for system programs that a user's PATH may lack.
pub(crate) fn path_of(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    find_in(folders, program)
}

/// The server that the tests and the demo start.
pub(crate) fn redis_server() -> Option<PathBuf> {
    match env::var_os("REDLATCH_REDIS_SERVER") {
        Some(chosen) => Some(chosen.into()),
        None => path_of("redis-server"),
    }
}

fn find(program: &str) -> Result<PathBuf, String> {
    path_of(program).ok_or_else(|| format!("`{program}` is not on the PATH"))
}

fn find_in(folders: impl IntoIterator<Item = PathBuf>, program: &str) -> Option<PathBuf> {
    folders.into_iter().map(|folder| folder.join(program)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn check_redis() -> Result<(), String> {
    let server = redis_server().ok_or("`redis-server` is not on the PATH")?;
    let said = process::output_of(Command::new(&server).arg("--version")).map_err(|error| error.to_string())?;
    match redis_version(&said) {
        Some(version) if version >= OLDEST_REDIS => Ok(()),
        Some((major, minor)) => Err(format!("{} is version {major}.{minor}", server.display())),
        None => Err(format!("{} does not tell its version: {}", server.display(), said.trim())),
    }
}

/// From `Redis server v=7.0.15 sha=…`; Valkey tells the Redis version that it stands for the same way.
fn redis_version(said: &str) -> Option<(u32, u32)> {
    let version = said.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn check_jdk() -> Result<(), String> {
    find("java")?;
    let javac = find("javac")?;
    let said = process::output_of(Command::new(&javac).arg("-version")).map_err(|error| error.to_string())?;
    match jdk_release(&said) {
        Some(release) if release >= OLDEST_JDK => Ok(()),
        Some(release) => Err(format!("{} is release {release}", javac.display())),
        None => Err(format!("{} does not tell its version: {}", javac.display(), said.trim())),
    }
}

/// From `javac 17.0.15`, or `javac 1.8.0_412` as it was written up to 8.
fn jdk_release(said: &str) -> Option<u32> {
    let version = said.trim().strip_prefix("javac ")?;
    let version = version.strip_prefix("1.").unwrap_or(version);
    let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_programs_say() {
        assert_eq!(redis_version("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0"), Some((7, 0)));
        assert_eq!(redis_version("Valkey server v=8.1.4 sha=00000000:0"), Some((8, 1)));
        assert_eq!(redis_version("something else"), None);
        assert_eq!(jdk_release("javac 17.0.15\n"), Some(17));
        assert_eq!(jdk_release("javac 21"), Some(21));
        assert_eq!(jdk_release("javac 25-ea"), Some(25));
        assert_eq!(jdk_release("javac 1.8.0_412"), Some(8));
        assert_eq!(jdk_release(""), None);
    }

    #[test]
    fn only_an_executable_file_counts_as_found() {
        let folder = env::temp_dir().join(format!("redlatch-xtask-tools-{}", std::process::id()));
        let (first, second) = (folder.join("first"), folder.join("second"));
        fs::create_dir_all(first.join("tool")).unwrap();
        fs::create_dir_all(&second).unwrap();
        fs::write(second.join("tool"), "").unwrap();
        let look = || find_in([first.clone(), second.clone()], "tool");
        assert_eq!(look(), None, "a folder and a plain file of that name");
        fs::set_permissions(second.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(look(), Some(second.join("tool")));
        fs::remove_dir_all(folder).unwrap();
    }
}
