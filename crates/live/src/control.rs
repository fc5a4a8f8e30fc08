// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How `plimsoll status`, `top` and `set` talk to the scheduler or the agent that runs: a socket, one line of JSON each way.
use crate::{shown, Error, Result, Scheduler, Status, Watch};
use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SOCKET: &str = "/run/plimsoll.sock";
/// A client that says nothing for this long is dropped: there is one thread.
const PATIENCE: Duration = Duration::from_millis(500);
/// A client waits no longer than this: a scheduler that answers later than this hangs.
const LONGEST_ANSWER: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Status {
        cgroup: Option<PathBuf>,
    },
    /// The knobs of a cgroup were changed: read them again.
    Reload {
        cgroup: PathBuf,
    },
}

impl Request {
    /// What it is about, as text.
    fn place(&self) -> String {
        match self {
            Self::Status { cgroup: Some(cgroup) } | Self::Reload { cgroup } => shown(cgroup),
            Self::Status { cgroup: None } => "status".into(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Status(Status),
    Done,
    Error(String),
}

/// Asks the scheduler that runs. `None`: done, nothing to tell. `Error::Input`: what was asked for is refused.
pub fn ask(request: &Request) -> Result<Option<Status>> {
    ask_at(Path::new(SOCKET), request)
}

fn ask_at(socket: &Path, request: &Request) -> Result<Option<Status>> {
    let said = |error: std::io::Error| {
        let socket = socket.display();
        format!("no plimsoll scheduler or agent answers at {socket} ({error}); `plimsoll run` and `plimsoll agent` start one")
    };
    let silent = |error: std::io::Error| Error::Machine(said(error));
    let mut stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        // The second is what a scheduler that was killed leaves behind.
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Error::Absent(said(error)),
        _ => silent(error),
    })?;
    stream.set_read_timeout(Some(LONGEST_ANSWER)).map_err(silent)?;
    // JSON has no words for a path that is not UTF-8.
    let mut line = serde_json::to_string(request).map_err(|_| {
        Error::Input(format!(
            "{}: not UTF-8: allowed are cgroups of which the whole path is",
            request.place()
        ))
    })?;
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(silent)?;
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => Error::Machine(format!(
                "a scheduler or an agent is there but has not answered at {} within {} s",
                socket.display(),
                LONGEST_ANSWER.as_secs()
            )),
            _ => silent(error),
        })?;
    match serde_json::from_str(&answer) {
        Ok(Answer::Status(status)) => Ok(Some(status)),
        Ok(Answer::Done) => Ok(None),
        Ok(Answer::Error(message)) => Err(Error::Input(message)),
        Err(error) => Err(Error::Failed(format!("the answer cannot be read: {error}"))),
    }
}

/// What answers requests.
pub trait Serves {
    /// Of all groups, or of the one at `cgroup` and what is below it.
    fn status(&mut self, cgroup: Option<&Path>) -> Status;
    /// The knobs of a cgroup were changed. An error says why they are refused.
    fn reload(&mut self, cgroup: &Path) -> Result<()>;
}

impl Serves for (&Scheduler<'_>, &mut Watch) {
    fn status(&mut self, cgroup: Option<&Path>) -> Status {
        Status::read(self.0, self.1, cgroup)
    }

    fn reload(&mut self, cgroup: &Path) -> Result<()> {
        self.1.reload(self.0, cgroup)
    }
}

pub struct Server {
    listener: UnixListener,
    /// Device and inode of the socket.
    file: (u64, u64),
}

impl Server {
    pub fn open() -> Result<Self> {
        let open = || {
            let _ = std::fs::remove_file(SOCKET);
            // SAFETY: changes this process's mask alone. A socket can be connected to where it can be written: by root
            // alone, whatever the mask was.
            let mask = unsafe { libc::umask(0o177) };
            let bound = UnixListener::bind(SOCKET);
            // SAFETY: as above.
            unsafe { libc::umask(mask) };
            let listener = bound?;
            listener.set_nonblocking(true)?;
            Ok(Self {
                listener,
                file: identity(&std::fs::symlink_metadata(SOCKET)?),
            })
        };
        open().map_err(|error: std::io::Error| Error::Machine(format!("{SOCKET}: {error}")))
    }

    /// Answers requests for up to `wait`, or until there is something to read `beside`: then true.
    pub fn serve(&self, serves: &mut impl Serves, wait: Duration, beside: Option<BorrowedFd<'_>>) -> bool {
        let descriptor = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // What is below 0 is left out.
        let beside = beside.map_or(-1, |fd| fd.as_raw_fd());
        let mut descriptors = [descriptor(self.listener.as_raw_fd()), descriptor(beside)];
        // Not in whole milliseconds: a caller that waits for a time would wake up before it, and wait once more.
        let wait = libc::timespec {
            tv_sec: wait.as_secs() as libc::time_t,
            tv_nsec: wait.subsec_nanos().into(),
        };
        // SAFETY: two descriptors, which are open; a time; no mask of signals.
        unsafe { libc::ppoll(descriptors.as_mut_ptr(), 2, &wait, std::ptr::null()) };
        let is_ready = descriptors[1].revents != 0;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => drop(answer(serves, &stream)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return is_ready,
            }
        }
    }
}

impl Drop for Server {
    /// The next scheduler may have begun already, while this one still says its last: its socket stays.
    fn drop(&mut self) {
        let is_own = |metadata: Metadata| identity(&metadata) == self.file;
        if std::fs::symlink_metadata(SOCKET).is_ok_and(is_own) {
            let _ = std::fs::remove_file(SOCKET);
        }
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn answer(serves: &mut impl Serves, mut stream: &UnixStream) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(Request::Status { cgroup }) => Answer::Status(serves.status(cgroup.as_deref())),
        Ok(Request::Reload { cgroup }) => match serves.reload(&cgroup) {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Error(error.to_string()),
        },
        Err(error) => Answer::Error(format!("request not understood: {error}")),
    };
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    stream.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_that_is_not_there_is_told_from_one_that_refuses_and_one_that_says_nothing() {
        let place = std::env::temp_dir().join(format!("plimsoll-control-{}", std::process::id()));
        let request = Request::Reload {
            cgroup: "/web".into(),
        };
        let ask = || ask_at(&place, &request);
        assert!(matches!(ask(), Err(Error::Absent(_))), "no socket");
        let listener = UnixListener::bind(&place).unwrap();
        let answers = ["{\"error\":\"refused\"}\n", ""];
        let server = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                BufReader::new(&stream).read_line(&mut String::new()).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert!(matches!(ask(), Err(Error::Input(message)) if message == "refused"));
        assert!(matches!(ask(), Err(Error::Failed(_))), "an empty answer");
        server.join().unwrap();
        assert!(matches!(ask(), Err(Error::Absent(_))), "nobody listens any more");
        std::fs::remove_file(&place).unwrap();
    }
}
