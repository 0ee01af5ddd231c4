//! Long-running processes of a lab, and how they are found again.
//!
//! There are no pid files. Every process carries the lab's owner id and its own role in one environment
//! variable, so the process table itself says what belongs to whom, also after this program was killed
//! between starting a process and writing anything down. A pid that was reused by a stranger has no such
//! mark, and signals go through a pidfd that was opened before the mark was read.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Names the variable that marks a process: `OWNER/ROLE`.
const MARK: &str = "KUBE_NODE_READY_LAB";
const POLL: Duration = Duration::from_millis(100);
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(20);
const LOG_TAIL_LINES: usize = 15;
const LOG_TAIL_BYTES: u64 = 16 * 1024;

/// A process found in the process table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) pid: i32,
    /// What the process is for: `etcd`, `router`, `node/n1`, `node/n1/kubelet`.
    pub(crate) role: String,
}

/// A process this program started itself, so its end can be noticed and explained.
#[derive(Debug, Clone)]
pub(crate) struct Daemon {
    role: String,
    log: PathBuf,
    pid: u32,
    /// Never that of another process, even after this one has ended.
    handle: Arc<OwnedFd>,
    ended: Arc<OnceLock<ExitStatus>>,
}

impl Daemon {
    /// Fails if the process has ended, with the last lines of its log.
    pub(crate) fn check(&self) -> Result<()> {
        match self.ended.get() {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}){}", self.role, self.log_tail()),
        }
    }

    /// How it ended, if it has.
    pub(crate) fn exit_status(&self) -> Option<ExitStatus> {
        self.ended.get().copied()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Where its output goes.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Sends a signal, which means nothing to a process that has ended.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        match pidfd_send_signal(&*self.handle, signal) {
            Err(err) if err != Errno::SRCH => {
                Err(err).with_context(|| format!("cannot signal {}", self.role))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The last lines of the log, ready to be appended to an error message.
    pub(crate) fn log_tail(&self) -> String {
        format!("; the last lines of {}:\n{}", self.log.display(), tail_or_reason(&self.log))
    }
}

/// Starts `command` detached from this program, with a clean environment, its output appended to `log`.
pub(crate) fn spawn(owner: &str, role: &str, log: &Path, mut command: Command) -> Result<Daemon> {
    let out =
        File::options().create(true).append(true).open(log).with_context(|| log.display().to_string())?;
    let mut child = detached(&mut command)
        .env(MARK, format!("{owner}/{role}"))
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
        .with_context(|| format!("cannot start {role}: {command:?}"))?;
    let (pid, handle) = (child.id(), Arc::new(open_child(&child)?));
    let ended = Arc::new(OnceLock::new());
    let slot = Arc::clone(&ended);
    // The process may outlive this program; while both live, somebody must reap it.
    std::thread::spawn(move || {
        if let Ok(status) = child.wait() {
            let _ = slot.set(status);
        }
    });
    Ok(Daemon { role: role.to_owned(), log: log.to_owned(), pid, handle, ended })
}

/// For a child that nobody has reaped yet, so that its pid is still its own.
fn open_child(child: &Child) -> Result<OwnedFd> {
    let pid = Pid::from_raw(child.id().try_into()?).context("a child has a pid")?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// The same command in a session of its own, so that Ctrl-C at a terminal does not reach it, and with nothing
/// inherited but what was set on it: a proxy setting or a `KUBECONFIG` of the user must not leak into the lab.
fn detached(command: &mut Command) -> Command {
    let mut outer = Command::new("setsid");
    outer.arg(command.get_program()).args(command.get_args()).env_clear();
    outer.current_dir(command.get_current_dir().unwrap_or(Path::new("/")));
    outer.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    outer.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    outer
}

/// All living processes of a lab.
pub(crate) fn find(owner: &str) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(role) = role_of(pid, owner) {
            found.push(Found { pid, role });
        }
    }
    Ok(found)
}

/// Ends all processes of a lab whose role `matches`, and waits until they are gone.
///
/// SIGKILL, because a lab is throw-away: nothing it holds needs to be flushed.
pub(crate) fn kill(owner: &str, matches: impl Fn(&str) -> bool) -> Result<()> {
    let deadline = Instant::now() + KILL_LIMIT;
    loop {
        let left = find_settled(owner, &matches)?;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("these processes do not end: {left:?}");
        }
        // A pidfd becomes readable when its process has ended for good: for pid 1 of a node that is after
        // everything else inside it has ended. Errors and time-outs are settled by the next look at the table.
        let handles: Vec<_> = left.iter().filter_map(|process| kill_one(owner, process)).collect();
        for handle in &handles {
            let limit = Timespec::try_from(deadline.saturating_duration_since(Instant::now()))?;
            let _ = poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&limit));
        }
    }
}

/// `None` means that the process is gone or was never ours.
fn kill_one(owner: &str, process: &Found) -> Option<OwnedFd> {
    let handle = pidfd_open(Pid::from_raw(process.pid)?, PidfdFlags::empty()).ok()?;
    if role_of(process.pid, owner).as_deref() != Some(&process.role) {
        return None;
    }
    pidfd_send_signal(&handle, Signal::KILL).ok()?;
    Some(handle)
}

/// The role of a process, if it carries the mark of this owner.
fn role_of(pid: i32, owner: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    role_in(&environment, owner)
}

fn role_in(environment: &[u8], owner: &str) -> Option<String> {
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let value = std::str::from_utf8(entry).ok()?.strip_prefix(MARK)?.strip_prefix('=')?;
        let (who, role) = value.split_once('/')?;
        (who == owner).then(|| role.to_owned())
    })
}

/// The process of this role that runs the program of this name. The wrappers which lead to it carry the same mark.
/// The program may have been replaced or deleted since.
pub(crate) fn find_program(owner: &str, role: &str, program: &str) -> Result<Option<i32>> {
    let runs = |pid| {
        let path = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.trim_end_matches(" (deleted)") == program
    };
    Ok(find(owner)?.into_iter().find(|found| found.role == role && runs(found.pid)).map(|found| found.pid))
}

/// Whether a process of this role is there.
pub(crate) fn is_running(owner: &str, role: &str) -> Result<bool> {
    Ok(!find_settled(owner, |found| found == role)?.is_empty())
}

/// All living processes of a lab whose role `matches`. A process that is just being replaced by another program has
/// an empty environment for an instant, so nothing counts as gone before it was missing twice.
fn find_settled(owner: &str, matches: impl Fn(&str) -> bool) -> Result<Vec<Found>> {
    let look =
        || -> Result<Vec<_>> { Ok(find(owner)?.into_iter().filter(|found| matches(&found.role)).collect()) };
    let found = look()?;
    if !found.is_empty() {
        return Ok(found);
    }
    std::thread::sleep(POLL / 2);
    look()
}

/// Looks until there is something to see, or one of `daemons` ends, or time is up.
///
/// An error of `look` is not final: the thing may not be there yet. The last one becomes part of the message.
pub(crate) fn wait_for<T>(
    what: &str,
    limit: Duration,
    daemons: &[&Daemon],
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        let last = match look() {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(err) => Some(err),
        };
        for daemon in daemons {
            daemon.check().with_context(|| format!("while waiting for {what}"))?;
        }
        if Instant::now() > deadline {
            let why = last.map(|err| format!(": {err:#}")).unwrap_or_default();
            let logs: String = daemons.iter().map(|daemon| daemon.log_tail()).collect();
            bail!("{what}: not within {} s{why}{logs}", limit.as_secs());
        }
        std::thread::sleep(POLL);
    }
}

/// Runs a command to its end and gives its standard output; a failure carries its standard error.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    run_with_input(command, Stdio::null(), &[])
}

/// As [`run`], with a text on standard input.
pub(crate) fn run_with_text(command: &mut Command, text: &str) -> Result<String> {
    run_with_input(command, Stdio::piped(), text.as_bytes())
}

/// As [`run`], with a file on standard input.
pub(crate) fn run_with_file(command: &mut Command, file: File) -> Result<String> {
    run_with_input(command, Stdio::from(file), &[])
}

fn run_with_input(command: &mut Command, stdin: Stdio, text: &[u8]) -> Result<String> {
    let mut child = command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input closes the pipe early: its exit code tells whether that is bad.
        let _ = stdin.write_all(text);
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(anyhow!("{} failed ({}): {}", shown(command), output.status, error.trim()))
}

/// The command as a person would type it, without the words that only lead into a node.
fn shown(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    let entered = words.iter().skip_while(|word| *word != "nsenter").skip_while(|word| *word != "--").count();
    let start = if entered == 0 { 0 } else { words.len() - entered + 1 };
    words[start..].join(" ")
}

/// The last lines of a log, or why there are none.
pub(crate) fn tail_or_reason(log: &Path) -> String {
    tail(log).unwrap_or_else(|err| format!("({} is not readable: {err})", log.display()))
}

/// The last lines of a file, without reading all of it.
fn tail(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_owner_is_recognised() {
        let environment = b"PATH=/bin\0KUBE_NODE_READY_LAB=abc/n1/kubelet\0HOME=/";
        assert_eq!(role_in(environment, "abc").as_deref(), Some("n1/kubelet"));
        assert_eq!(role_in(environment, "ab"), None);
        assert_eq!(role_in(b"XKUBE_NODE_READY_LAB=abc/n1\0KUBE_NODE_READY_LABS=abc/n1", "abc"), None);
    }

    #[test]
    fn a_failed_command_is_shown_without_its_way_into_the_node() {
        let mut command = Command::new("sh");
        command.args(["-c", "x", "join", "a", "--", "nsenter", "--target", "1", "--", "ctr", "--", "y"]);
        assert_eq!(shown(&command), "ctr -- y");
        assert_eq!(shown(Command::new("ip").arg("route")), "ip route");
    }

    #[test]
    fn a_daemon_that_ends_is_reported_with_its_log() {
        let log = std::env::temp_dir().join(format!("lab-process-{}.log", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo the disk is full >&2; exit 3"]);
        let daemon = spawn("unit-test", "etcd", &log, command).unwrap();
        let error = wait_for::<()>("etcd", Duration::from_secs(10), &[&daemon], || Ok(None)).unwrap_err();
        let text = format!("{error:#}");
        fs::remove_file(&log).unwrap();
        assert!(text.contains("etcd ended (exit status: 3)"), "{text}");
        assert!(text.contains("the disk is full"), "{text}");
    }

    #[test]
    fn killing_ends_what_carries_the_mark_and_nothing_else() {
        let log = std::env::temp_dir().join(format!("lab-kill-{}.log", std::process::id()));
        let sleeper = |owner: &str| {
            let mut command = Command::new("sleep");
            command.arg("600");
            spawn(owner, "sleeper", &log, command).unwrap()
        };
        let (mine, other) = (format!("mine-{}", std::process::id()), format!("other-{}", std::process::id()));
        let (_mine, _other) = (sleeper(&mine), sleeper(&other));
        wait_for("both", Duration::from_secs(10), &[], || {
            Ok((find(&mine)?.len() == 1 && find(&other)?.len() == 1).then_some(()))
        })
        .unwrap();
        kill(&mine, |_| true).unwrap();
        assert_eq!(find(&mine).unwrap(), []);
        assert_eq!(find(&other).unwrap().len(), 1);
        kill(&other, |_| true).unwrap();
        fs::remove_file(&log).unwrap();
    }
}
