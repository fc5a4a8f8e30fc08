// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A screening as one self-contained page: a table that sorts by each column, and shows a namespace or a class alone.
//! Nothing is loaded from elsewhere, and the page forbids it.
use crate::class::Class;
use crate::collect::Screening;
use crate::table::Row;
use plimsoll_page::{begin, escape, END};
use std::collections::BTreeSet;
use std::fmt::Write;

const STYLE: &str = "body{line-height:1.45;max-width:1160px;margin:1.5em auto}\
h1{margin-bottom:.2em}h2{margin-top:1em}p{margin:.4em 0}table{width:100%}\
td,th{padding:.25em .6em .1em 0;text-align:right;font-variant-numeric:tabular-nums}\
.t{text-align:left;overflow-wrap:anywhere}th,.c{white-space:nowrap;overflow-wrap:normal}.why{color:#555;font-size:.9em;padding-bottom:.45em;text-align:left}\
#rows tbody{border-top:1px solid #e4e4e4}#classes{width:auto}th button{all:unset;cursor:pointer}th button:focus-visible{outline:2px solid #3057b8}\
th[aria-sort=ascending] button::after{content:' \\2191'}th[aria-sort=descending] button::after{content:' \\2193'}\
thead th{vertical-align:bottom;position:sticky;top:0;background:#fff}form{margin:1em 0;display:flex;flex-wrap:wrap;gap:.4em 1.2em}\
select,input{font:inherit;max-width:15em}\
[hidden]{display:none}@media(max-width:1000px){body{font-size:13px;margin:.8em auto}td,th{padding-right:.4em}}";

/// Sorts whole rows (a row is a tbody, with its reason below it) and hides those that are not asked for. Of those that are,
/// it lays out the first 500 until all are asked for: a browser takes seconds to lay out 10,000.
const SCRIPT: &str = r#"
const table = document.getElementById('rows'), heads = [...table.tHead.rows[0].cells];
const bodies = () => [...table.tBodies];
const value = (body, i) => { const v = body.rows[0].cells[i].dataset.v; return v === undefined ? body.rows[0].cells[i].textContent : Number(v); };
heads.forEach((head, i) => head.querySelector('button').addEventListener('click', () => {
  const numbers = head.className !== 't';
  const down = head.ariaSort ? head.ariaSort === 'ascending' : numbers;
  heads.forEach(other => other.removeAttribute('aria-sort'));
  head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  const by = (a, b) => typeof a === 'number' ? a - b : words.compare(a, b);
  const sorted = bodies().map(body => [value(body, i), body]).sort((a, b) => down ? by(b[0], a[0]) : by(a[0], b[0]));
  table.append(...sorted.map(pair => pair[1]));
  filter();
}));
const form = document.querySelector('form'), shown = document.getElementById('shown'), words = new Intl.Collator();
const all = form.querySelector('button');
let most = 500;
const filter = () => {
  const [space, kind, word] = [form.namespace.value, form.kind.value, form.word.value.toLowerCase()];
  let count = 0;
  for (const body of bodies()) {
    const [c, n] = body.rows[0].cells;
    const other = space && n.textContent !== space || kind && c.textContent !== kind
      || word && !body.textContent.toLowerCase().includes(word);
    count += !other;
    body.hidden = other || count > most;
  }
  all.hidden = count <= most;
  shown.textContent = count + ' of ' + table.tBodies.length + ' rows' + (all.hidden ? '' : ', the first ' + most + ' shown');
};
all.addEventListener('click', () => { most = Infinity; filter(); });
form.addEventListener('input', filter);
form.addEventListener('submit', event => event.preventDefault());
filter();
"#;

const TITLES: [(&str, &str, &str); 12] = [
    ("class", "t", ""),
    ("namespace", "t", ""),
    ("workload", "t", "and its container"),
    ("pods", "", "that run today"),
    ("used", "", "CPUs of one pod, on average"),
    (
        "p99",
        "",
        "CPUs of one pod that are not exceeded in 99% of the time",
    ),
    ("request", "", "CPUs of one pod"),
    ("limit", "", "CPUs of one pod"),
    ("throttled", "", "share of the periods"),
    ("advice", "t", "what helps, of one pod"),
    ("back", "", "CPUs of all pods that the request could give back"),
    ("saved", "", "what these cost in a month"),
];

/// The page. `record`: commands for what is worth recording, a line each.
pub fn html(found: &Screening, record: &[String]) -> String {
    let mut page = begin("CPU limits of a fleet", STYLE, true);
    write_page(&mut page, found, record).expect("writing into memory");
    page
}

fn write_page(page: &mut String, found: &Screening, record: &[String]) -> std::fmt::Result {
    writeln!(
        page,
        "<p>{}. CPUs are of one pod, <i>back</i> is of all.</p>",
        found.extent()
    )?;
    for warning in &found.warnings {
        writeln!(page, "<p class=\"warning\">{}</p>", escape(warning))?;
    }
    let priced = found.priced();
    let saved = if priced { "<th>saved a month</th>" } else { "" };
    writeln!(
        page,
        "<table id=\"classes\"><tr><th class=\"t\">class</th><th>rows</th><th>CPUs to free</th>{saved}</tr>"
    )?;
    for class in Class::ALL {
        let (back, saved) = (found.back_cpus_of(class), found.saved_a_month(class));
        let saved = saved.map_or(String::new(), |saved| format!("<td>{saved:.0}</td>"));
        writeln!(
            page,
            "<tr><td class=\"t c\">{}</td><td>{}</td><td>{back:.1}</td>{saved}</tr>",
            class.name(),
            found.count(class)
        )?;
    }
    writeln!(page, "</table>\n<form>")?;
    let spaces: BTreeSet<&str> = found
        .rows
        .iter()
        .map(|row| row.workload.namespace.as_str())
        .collect();
    choice(page, "namespace", "namespace", spaces)?;
    let classes = Class::ALL.into_iter().filter(|class| found.count(*class) > 0);
    choice(page, "kind", "class", classes.map(Class::name))?;
    writeln!(
        page,
        "<label>word <input name=\"word\" type=\"search\"></label><span id=\"shown\"></span>\
         <button hidden>show all</button></form>"
    )?;
    writeln!(page, "<table id=\"rows\"><thead><tr>")?;
    let titles = &TITLES[..TITLES.len() - usize::from(!priced)];
    for (title, kind, about) in titles {
        writeln!(
            page,
            "<th class=\"{kind}\" title=\"{about}\"><button>{title}</button></th>"
        )?;
    }
    writeln!(page, "</tr></thead>")?;
    for row in &found.rows {
        write_row(page, row, titles.len())?;
    }
    writeln!(page, "</table>")?;
    if !record.is_empty() {
        writeln!(
            page,
            "<h2>Worth recording</h2>\n<p>A share of throttled periods says nothing about latency. On the node of the pod, then \
             <code>plimsoll plan</code>:</p>\n<pre>{}</pre>",
            escape(&record.join("\n"))
        )?;
    }
    write!(page, "<script>{SCRIPT}</script>{END}")
}

fn choice<'a>(
    page: &mut String,
    name: &str,
    label: &str,
    values: impl IntoIterator<Item = &'a str>,
) -> std::fmt::Result {
    write!(
        page,
        "<label>{label} <select name=\"{name}\"><option value=\"\">all</option>"
    )?;
    for value in values {
        write!(page, "<option>{}</option>", escape(value))?;
    }
    writeln!(page, "</select></label>")
}

fn write_row(page: &mut String, row: &Row, columns: usize) -> std::fmt::Result {
    let text = |page: &mut String, kind: &str, text: &str| {
        write!(page, "<td class=\"{kind}\">{}</td>", escape(text))
    };
    let number = |page: &mut String, value: Option<f64>, shown: String| match value {
        Some(value) => write!(page, "<td data-v=\"{value}\">{shown}</td>"),
        // Sorts below every number.
        None => write!(page, "<td data-v=\"-1\">-</td>"),
    };
    let cpus = |value: f64| match value {
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    };
    write!(page, "<tbody><tr>")?;
    text(page, "t c", row.class.name())?;
    text(page, "t", &row.workload.namespace)?;
    let name = format!("{}/{} {}", row.workload.kind, row.workload.name, row.container);
    text(page, "t", &name)?;
    number(page, Some(row.pods as f64), row.pods.to_string())?;
    for value in [Some(row.used), Some(row.used_p99), row.request, row.limit] {
        number(page, value, value.map_or(String::new(), cpus))?;
    }
    let throttled = (row.periods > 0.0).then_some(row.throttled_share);
    number(page, throttled, format!("{:.1}%", row.throttled_share * 100.0))?;
    text(page, "t", &row.advice.in_words())?;
    let back = Some(row.advice.back_cpus + 0.0).filter(|back| *back > 0.0);
    number(page, back, cpus(row.advice.back_cpus))?;
    if let Some(saved) = row.advice.saved_a_month {
        number(
            page,
            Some(saved).filter(|saved| *saved > 0.0),
            format!("{saved:.0}"),
        )?;
    }
    write!(
        page,
        "</tr><tr><td class=\"why\" colspan=\"{columns}\">{}",
        escape(&row.reason)
    )?;
    for note in &row.notes {
        write!(page, " ({})", escape(note))?;
    }
    writeln!(page, "</td></tr></tbody>")
}
