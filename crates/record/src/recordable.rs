// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a definition of a request can match anything in what is about to be recorded. A user should not learn that
//! from `plimsoll plan`, when the load is gone.
use crate::cgroup::Hierarchy;
use crate::error::RecordError;
use plimsoll_trace::RequestSpec;
use std::collections::BTreeSet;
use std::fs;

/// Names that an error lists at most.
const NAMES_MAX: usize = 8;

/// Refuses a `--request` by thread where no such thread is recorded. `only_below`: the one group whose threads are.
///
/// Without it, a thread of a name may still come from anywhere; a process (`process:`) may come always.
pub fn check(
    request: &RequestSpec,
    only_below: Option<&str>,
    hierarchy: &Hierarchy,
) -> Result<(), RecordError> {
    let refused = |what: String, allowed: String| {
        Err(RecordError::Input {
            field: "request",
            value: format!("{request}: {what}"),
            allowed,
        })
    };
    match (request, only_below) {
        (RequestSpec::Tid { tid }, None) if name_of(*tid).is_none() => refused(
            "no such thread".into(),
            "the id of a thread that runs, or comm:GLOB".into(),
        ),
        (RequestSpec::Comm { .. } | RequestSpec::Client { .. } | RequestSpec::Tid { .. }, Some(group)) => {
            let recorded: Vec<(u32, String)> = hierarchy
                .threads(group)
                .into_iter()
                .filter_map(|tid| Some((tid, name_of(tid)?)))
                .collect();
            if recorded
                .iter()
                .any(|(tid, name)| request.names_thread(*tid, name))
            {
                return Ok(());
            }
            refused(
                format!("no such thread is in {group}, and only threads of that group are recorded"),
                format!(
                    "a thread that is in the group when recording begins ({}), a --cgroup that holds it, too, or no \
                     --cgroup",
                    names(recorded.into_iter().map(|thread| thread.1))
                ),
            )
        }
        _ => Ok(()),
    }
}

fn names(of: impl Iterator<Item = String>) -> String {
    let all: BTreeSet<String> = of.collect();
    let mut first: Vec<String> = all.iter().take(NAMES_MAX).cloned().collect();
    match all.len() {
        0 => return "it has none now".into(),
        count if count > NAMES_MAX => first.push(format!("{} more", count - NAMES_MAX)),
        _ => {}
    }
    first.join(", ")
}

/// A thread's name, if it is there.
fn name_of(tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{tid}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that stands for a hierarchy in which `/web` holds this thread alone, which has a name of its own.
    fn with_this_thread(then: impl FnOnce(&Hierarchy, u32) + Send + 'static) {
        let named = std::thread::Builder::new().name("plim-web".into());
        let body = || {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("web/inner")).unwrap();
            // SAFETY: a plain system call.
            let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
            fs::write(root.path().join("web/inner/cgroup.threads"), format!("{tid}\n")).unwrap();
            then(&Hierarchy::v2(root.path().into()), tid);
        };
        named.spawn(body).unwrap().join().unwrap();
    }

    #[test]
    fn a_request_by_threads_that_are_not_recorded_is_refused() {
        with_this_thread(|hierarchy, tid| {
            let checked = |request: &str, group| check(&request.parse().unwrap(), group, hierarchy);
            let own = format!("tid:{tid}");
            for request in [
                "comm:plim-*",
                "client:plim-web",
                &own,
                "process:wrk",
                "uprobe:/bin/x:f:g",
            ] {
                checked(request, Some("/web")).unwrap();
            }
            for request in ["client:wrk", "comm:wrk", "tid:1"] {
                let error = checked(request, Some("/web")).unwrap_err().to_string();
                assert!(
                    error.starts_with(&format!("request: {request}: no such thread is in /web"))
                        && error.contains("(plim-web)"),
                    "{error}"
                );
            }
            checked("client:wrk", None).unwrap();
            checked(&own, None).unwrap();
            let error = checked(&format!("tid:{}", plimsoll_trace::TID_MAX), None).unwrap_err();
            assert!(error.to_string().contains("no such thread"), "{error}");
        });
    }
}
