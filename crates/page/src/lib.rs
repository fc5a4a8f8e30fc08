// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Self-contained pages: how one begins, text in it, charts. Nothing is loaded from elsewhere, and each page forbids it.
pub mod svg;

/// What all pages look like; each adds its own.
const STYLE: &str =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1120px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em;overflow-wrap:anywhere}table{border-collapse:collapse}\
th,td{vertical-align:top}pre{background:#f3f3f3;padding:.7em;overflow-x:auto}.note{color:#666;font-size:.9em}\
.warning{color:#b00020;font-weight:bold}.wide{overflow-x:auto}";

/// Text as it stands in a page, in attributes, too. Names are what the owner of the file or the cluster chose.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            _ => out.push(c),
        }
    }
    out
}

/// The beginning of a page up to its heading: `title` says both what it is called and what it shows. `style`: what it adds to
/// the style of all. `scripts`: it has some of its own.
pub fn begin(title: &str, style: &str, scripts: bool) -> String {
    let scripts = if scripts {
        ";script-src 'unsafe-inline'"
    } else {
        ""
    };
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline'{scripts}\">\
         <title>{title}</title><style>{STYLE}{style}</style></head><body>\n<h1>{title}</h1>"
    )
}

/// The end of a page.
pub const END: &str = "</body></html>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_loads_nothing_and_shows_any_title_as_text() {
        let page = begin("<script>'\"&", "p{margin:0}", false) + END;
        assert!(page.contains("default-src 'none'") && !page.contains("script-src"));
        assert!(page.contains("<h1>&lt;script&gt;&#39;&quot;&amp;</h1>"), "{page}");
        assert!(begin("a", "", true).contains("script-src 'unsafe-inline'"));
    }
}
