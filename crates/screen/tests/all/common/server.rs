// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server with the API of Prometheus over a fleet of [`Made`], that misbehaves as it is told to.
use super::{Made, BEGIN_MS, STEP_MS};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub const END_MS: i64 = BEGIN_MS + 400 * STEP_MS;

/// What a server does with a request instead of answering it.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Another status and body.
    Status(u16, &'static str),
    /// Another body.
    Body(String),
    /// The answer ends in its middle: the connection is closed before the length that was promised.
    Cut,
    /// Half of the answer, and a length that fits: JSON without its end.
    Half,
    /// No answer at all until the other side gives up.
    Silence,
    /// What comes instead of some text of the answer.
    Replace(&'static str, &'static str),
}

/// What was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub parameters: Vec<(String, String)>,
    pub headers: String,
    /// How often the same was asked before.
    pub before: usize,
}

impl Asked {
    pub fn get(&self, name: &str) -> &str {
        self.parameters
            .iter()
            .find(|(n, _)| n == name)
            .map_or("", |(_, value)| value)
    }

    /// Whether the samples of this counter are asked for.
    pub fn samples_of(&self, metric: &str) -> bool {
        self.get("query").starts_with(&format!("{metric}{{")) && self.get("query").ends_with(']')
    }
}

type Judge = dyn Fn(&Asked) -> Option<Fault> + Send + Sync;

pub struct Fake {
    pub url: String,
    pub asked: Arc<Mutex<Vec<Asked>>>,
    closed: Arc<AtomicBool>,
    port: u16,
}

impl Fake {
    pub fn new(fleet: Vec<Made>, judge: impl Fn(&Asked) -> Option<Fault> + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let closed: Arc<AtomicBool> = Arc::default();
        let (fleet, judge): (Arc<Vec<Made>>, Arc<Judge>) = (Arc::new(fleet), Arc::new(judge));
        let (heard, end) = (asked.clone(), closed.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let (fleet, judge, heard) = (fleet.clone(), judge.clone(), heard.clone());
                std::thread::spawn(move || serve(stream.expect("a connection"), &fleet, &*judge, &heard));
            }
        });
        Fake {
            url: format!("http://127.0.0.1:{port}/prefix/"),
            asked,
            closed,
            port,
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the one who waits for connections.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// One request for each connection.
fn serve(mut stream: TcpStream, fleet: &[Made], judge: &Judge, heard: &Mutex<Vec<Asked>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8(head).expect("ASCII");
    let mut words = head.split(' ');
    let (method, target) = (words.next().expect("a method"), words.next().expect("a target"));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parameters: Vec<_> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect();
    let asked = {
        let mut heard = heard.lock().expect("no panic");
        let before = heard
            .iter()
            .filter(|one| one.path == path && one.parameters == parameters)
            .count();
        heard.push(Asked {
            method: method.into(),
            path: path.into(),
            parameters,
            headers: head.clone(),
            before,
        });
        heard.last().expect("pushed").clone()
    };
    let fault = judge(&asked);
    let mut body = answer(&asked, fleet);
    let (mut status, mut sent) = (200, None);
    match fault {
        None => {}
        Some(Fault::Status(other, text)) => (status, body) = (other, text.into()),
        Some(Fault::Body(text)) => body = text,
        Some(Fault::Cut) => sent = Some(body.len() / 2),
        Some(Fault::Half) => body.truncate(body.len() / 2),
        Some(Fault::Replace(from, to)) => {
            assert!(body.contains(from), "{from} is not in the answer to {asked:?}");
            body = body.replace(from, to);
        }
        Some(Fault::Silence) => {
            let _ = stream.read(&mut byte);
            return;
        }
    }
    let sent = sent.unwrap_or(body.len());
    let _ = write!(
        stream,
        "HTTP/1.1 {status} said\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{}",
        body.len(),
        &body[..sent]
    );
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let hex: String = rest.by_ref().take(2).map(char::from).collect();
                u8::from_str_radix(&hex, 16).expect("two digits")
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// The name of a selector, and the length of its range in ms.
fn selected(query: &str) -> (&str, i64) {
    let (name, rest) = query.split_once('{').expect("a selector");
    let length = rest.rsplit_once('[').expect("a range").1;
    let length = length.split("ms]").next().expect("ms");
    (name, length.parse().expect("ms"))
}

fn ms(seconds: &str) -> i64 {
    (seconds.parse::<f64>().expect("seconds") * 1e3).round() as i64
}

/// What Prometheus 2 would say to the questions that a screening has: a sample at the beginning of a range counts.
fn answer(asked: &Asked, fleet: &[Made]) -> String {
    let query = asked.get("query");
    let data = |data: String| format!(r#"{{"status":"success","data":{data}}}"#);
    let matrix = |series: Vec<String>| {
        data(format!(
            r#"{{"resultType":"matrix","result":[{}]}}"#,
            series.join(",")
        ))
    };
    let matches = |made: &&Made| !query.contains("namespace") || query.contains(&made.namespace);
    match asked.path.trim_start_matches("/prefix/api/v1/") {
        "label/namespace/values" => {
            let mut names: Vec<_> = fleet.iter().map(|made| format!("{:?}", made.namespace)).collect();
            names.sort();
            names.dedup();
            data(format!("[{}]", names.join(",")))
        }
        "series" => {
            let own = asked.get("match[]").starts_with("kube_pod_owner");
            let owners = fleet.iter().filter(|_| own).map(|made| {
                format!(
                    r#"{{"__name__":"kube_pod_owner","namespace":"{}","pod":"{}","owner_kind":"StatefulSet","owner_name":"{}"}}"#,
                    made.namespace, made.pod, made.pod
                )
            });
            data(format!("[{}]", owners.collect::<Vec<_>>().join(",")))
        }
        "query_range" if query.starts_with("irate(") => {
            let (name, window_ms) = selected(query.trim_start_matches("irate("));
            let (step_ms, end_ms) = (ms(asked.get("step")), ms(asked.get("end")));
            let times: Vec<i64> = (ms(asked.get("start"))..=end_ms)
                .step_by(step_ms as usize)
                .collect();
            let all = fleet.iter().filter(matches).filter_map(|made| {
                let (_, points) = made.counters.iter().find(|(own, _)| *own == name)?;
                let rates = times.iter().filter_map(|&at_ms| {
                    let inside = points
                        .iter()
                        .filter(|point| (at_ms - window_ms..=at_ms).contains(&point.0));
                    let last: Vec<_> = inside.rev().take(2).collect();
                    let [(end_ms, end), (begin_ms, begin)] = last[..] else {
                        return None;
                    };
                    // Prometheus takes a counter that fell to have begun anew.
                    let by = if end < begin { *end } else { end - begin };
                    Some((at_ms, by / ((end_ms - begin_ms) as f64 / 1e3)))
                });
                let rates: Vec<_> = rates.collect();
                (!rates.is_empty()).then(|| made.series(name, "", &rates))
            });
            matrix(all.collect())
        }
        "query_range" => {
            let all = fleet.iter().filter(matches).flat_map(|made| {
                let settings = [("limits", made.limit), ("requests", made.request)];
                let named = settings.into_iter().filter_map(move |(what, cpus)| {
                    let name = format!("kube_pod_container_resource_{what}");
                    Some(made.series(&name, r#","resource":"cpu""#, &[(ms(asked.get("end")), cpus?)]))
                });
                named.chain([made.series("container_spec_cpu_period", "", &[(END_MS, 1e5)])])
            });
            matrix(all.collect())
        }
        "query" if query == "time()" => data(format!(
            r#"{{"resultType":"scalar","result":[{0},"{0}"]}}"#,
            END_MS / 1000
        )),
        "query" if query.starts_with("count") => {
            let series = fleet.iter().map(|made| {
                format!(
                    r#"{{"metric":{{"namespace":"{}"}},"value":[1,"1"]}}"#,
                    made.namespace
                )
            });
            data(format!(
                r#"{{"resultType":"vector","result":[{}]}}"#,
                series.collect::<Vec<_>>().join(",")
            ))
        }
        "query" if query.starts_with("resets(") => {
            let (name, _) = selected(query.trim_start_matches("resets("));
            let all = fleet.iter().filter(matches).filter_map(|made| {
                let (_, points) = made.counters.iter().find(|(own, _)| *own == name)?;
                let falls = points.windows(2).filter(|two| two[1].1 < two[0].1).count();
                (falls > 0).then(|| made.series(name, "", &[(END_MS, falls as f64)]))
            });
            matrix(all.collect())
        }
        "query" => {
            let (name, length_ms) = selected(query);
            let to_ms = ms(asked.get("time"));
            let all = fleet.iter().filter(matches).filter_map(|made| {
                let (_, points) = made.counters.iter().find(|(own, _)| *own == name)?;
                let inside = |point: &&(i64, f64)| (to_ms - length_ms..=to_ms).contains(&point.0);
                let points: Vec<_> = points.iter().filter(inside).copied().collect();
                (!points.is_empty()).then(|| made.series(name, "", &points))
            });
            matrix(all.collect())
        }
        other => panic!("asked for {other}"),
    }
}

/// All samples of a counter, whatever the time.
pub fn everything(fleet: &[Made], metric: &str) -> String {
    let series: Vec<_> = fleet
        .iter()
        .filter_map(|made| {
            let (name, points) = made.counters.iter().find(|(own, _)| *own == metric)?;
            Some(made.series(name, "", points))
        })
        .collect();
    format!(
        r#"{{"status":"success","data":{{"resultType":"matrix","result":[{}]}}}}"#,
        series.join(",")
    )
}
