//! The path of a target as upstream servers may read it.

use std::borrow::Cow;
use std::ops::Range;
use std::{iter, mem};

use arrayvec::ArrayVec;
use memchr::{memchr, memchr2, memrchr};

use crate::model::domain::{PERCENT_U_BYTES, decode_percent_u};
use crate::model::letter_case::fold_case_of_bytes;

/// The bytes from which on some servers ignore the rest of a segment: they begin an extension,
/// parameters, a query, a fragment or blanks.
const IGNORED_BEHIND_NAME: &[u8] = b".;:?# \t";

/// The file extensions of programs, apart from `php` and its versions.
const SCRIPT_EXTENSIONS: [&[u8]; 12] = [
    b"asp", b"aspx", b"cfc", b"cfm", b"cgi", b"fcgi", b"phtml", b"pl", b"psgi", b"py", b"rb",
    b"wsgi",
];

/// The most places in a path that may begin a session id. At each place, riskgate searches for the
/// end of the session id.
const MAX_SESSION_ID_BEGINNINGS: usize = 64;

/// The most names of programs in one path that riskgate looks at.
const MAX_SCRIPTS: usize = 8;

/// The most segments in a path that servers may read in several ways.
const MAX_SEGMENTS: usize = 512;

/// The ways in which upstream servers may read the path of one target.
pub struct PathReadings<'p> {
    /// The path without the query.
    readings: ReadingsOfText<'p>,
    /// The path with the query as its last segments: see [`continue_path_with_query`].
    readings_with_query: Vec<Reading<'p>>,
    /// Those of the paths with the query that riskgate can't read.
    unread_query_paths: Vec<Vec<u8>>,
    /// Whether the query may be the rest of the path to any route.
    may_query_lead_to_each_path: bool,
    /// Whether all servers read the target's path alike: see [`is_plain_path`].
    is_plain: bool,
}

/// The readings of one text: the text as it is, decoded once, and decoded twice, and each of these
/// without session ids. If decoding or the removal of ids changes nothing, it adds no reading.
type ReadingsOfText<'p> = ArrayVec<Reading<'p>, 6>;

/// One reading of a path.
struct Reading<'p> {
    /// The path. It begins with `/`, or is empty. Blank segments are missing, because servers merge
    /// repeated slashes, and some servers drop parameters before they do so. Only the last segment
    /// may be blank.
    path: Cow<'p, [u8]>,
    /// Whether a server may take the first segment for a host, because the server reads the target
    /// as a relative URL (RFC 3986 section 4.2).
    may_have_host: bool,
    /// The places of the names of programs in `path`, each with the `/` before it. A name is
    /// missing if only a blank segment or none is behind it. At most [`MAX_SCRIPTS`] are listed.
    scripts: Vec<Range<usize>>,
}

/// A path that some server may read.
pub struct PossiblePath<'r> {
    /// The path is the first part with the second part behind it. Each part begins with `/`, or is
    /// empty.
    parts: [&'r [u8]; 2],
}

impl<'p> PathReadings<'p> {
    /// Reads the path of a target. Returns `None` in these cases, because servers disagree about
    /// such a path, or because reading it would take long:
    /// - The path does not begin with `/`.
    /// - One of the readings has a dot segment, a `\`, an ASCII control character, too many
    ///   segments, or too many beginnings of session ids.
    pub fn of(target: &'p [u8]) -> Option<PathReadings<'p>> {
        let (path, query) = split_path_and_query(target);
        if path.first() != Some(&b'/') {
            return None;
        }
        let with_query = continue_path_with_query(path, query);
        let may_leave_path = with_query.iter().any(|text| may_have_dot_segment(text));
        let is_plain = with_query.is_empty() && is_plain_path(path);
        let of_query: Vec<Option<ReadingsOfText<'p>>> =
            with_query.iter().map(|text| read_text(Cow::Owned(text.clone()))).collect();
        let is_unread = |read: &Option<ReadingsOfText<'p>>| read.is_none();
        let readings = match is_plain {
            true => {
                let path = Cow::Borrowed(path);
                let plain = Reading { path, may_have_host: false, scripts: Vec::new() };
                ReadingsOfText::from_iter([plain])
            }
            false => read_text(Cow::Borrowed(path))?,
        };
        Some(PathReadings {
            readings,
            may_query_lead_to_each_path: may_leave_path || of_query.last().is_some_and(is_unread),
            unread_query_paths: with_query
                .into_iter()
                .zip(&of_query)
                .filter_map(|(text, read)| is_unread(read).then_some(text))
                .collect(),
            readings_with_query: of_query.into_iter().flatten().flatten().collect(),
            is_plain,
        })
    }

    /// Returns true if some servers may read another path in this one: a path that is decoded, that
    /// lacks some of the segments, or session ids, or that goes on in the query.
    pub fn may_hide_path(&self) -> bool {
        let may_lack_segments = |it: &Reading| it.may_have_host || !it.scripts.is_empty();
        self.is_query_unreadable()
            || !self.readings_with_query.is_empty()
            || self.readings.len() > 1
            || self.readings.iter().any(may_lack_segments)
    }

    /// Whether a server may read the query as the rest of the path, and riskgate can't tell which
    /// path the server then reads.
    pub fn is_query_unreadable(&self) -> bool {
        !self.unread_query_paths.is_empty()
    }

    /// Whether a query that riskgate can't read may lead to `prefix`, or to a path below it: with
    /// its dot segments resolved in one of the ways of servers, or if it would take long to find
    /// out. `prefix` begins with `/`.
    pub fn may_unread_query_lead_to(&self, prefix: &str) -> bool {
        self.unread_query_paths.iter().any(|path| {
            list_spellings_of(Cow::Borrowed(path))
                .is_none_or(|all| all.iter().any(|spelling| may_resolve_to(spelling, prefix)))
        })
    }

    /// Whether the query may lead to each path: riskgate can't read the query up to its first `&`,
    /// or a later part has a dot segment. A line end or a `\` in a parameter leads nowhere.
    pub fn may_query_lead_to_each_path(&self) -> bool {
        self.may_query_lead_to_each_path
    }

    /// The paths that some server may read.
    pub fn paths(&self) -> impl Iterator<Item = PossiblePath<'_>> {
        let with_query = self.readings_with_query.iter().flat_map(Reading::paths_without_host);
        let behind_hosts = self.readings.iter().filter_map(Reading::strip_host_segment);
        self.paths_without_hosts_and_query().chain(with_query).chain(behind_hosts)
    }

    /// The paths that a server may read that ignores the query, and never takes a segment for a
    /// host.
    fn paths_without_hosts_and_query(&self) -> impl Iterator<Item = PossiblePath<'_>> {
        self.readings.iter().flat_map(Reading::paths_without_host)
    }

    /// Returns true if a server may read the path as `prefix`, or as a path below it. `prefix`
    /// begins with `/`.
    pub fn is_at_or_below(&self, prefix: &str) -> bool {
        self.is_plain_at_or_below(prefix)
            .unwrap_or_else(|| self.paths().any(|path| path.is_at_or_below(prefix)))
    }

    /// Like [`PathReadings::is_at_or_below`], for servers that ignore the query, and never take a
    /// segment for a host.
    pub fn is_at_or_below_without_host_and_query(&self, prefix: &str) -> bool {
        self.is_plain_at_or_below(prefix).unwrap_or_else(|| {
            self.paths_without_hosts_and_query().any(|path| path.is_at_or_below(prefix))
        })
    }

    /// The answer for a path that all servers read alike; `None` for other paths.
    fn is_plain_at_or_below(&self, prefix: &str) -> Option<bool> {
        let reading = self.readings.first().filter(|_| self.is_plain)?;
        Some(is_plain_path_at_or_below(&reading.path, prefix))
    }
}

impl<'p> Reading<'p> {
    /// `None` if servers disagree about where this path leads, or if it has too many segments.
    fn of(path: Cow<'p, [u8]>) -> Option<Reading<'p>> {
        let may_have_host = path.starts_with(b"//");
        if path.iter().any(|byte| byte.is_ascii_control() || *byte == b'\\') {
            return None;
        }
        let path = without_blank_segments(path);
        let (mut scripts, mut script, mut end, mut count) = (Vec::new(), None, 0, 0);
        for segment in path.split(|byte| *byte == b'/').skip(1) {
            let start = end;
            (end, count) = (start + 1 + segment.len(), count + 1);
            if is_dot_segment(segment) || count > MAX_SEGMENTS {
                return None;
            }
            if !is_blank(segment) {
                // A segment follows the name of a program that was found before.
                scripts.extend(script.take());
            }
            if scripts.len() < MAX_SCRIPTS && is_script(segment) {
                script = Some(start..end);
            }
        }
        Some(Reading { path, may_have_host, scripts })
    }

    /// The path itself, and what a program may read whose name is in the path: the segments behind
    /// its name, with or without the segments before its name.
    fn paths_without_host(&self) -> impl Iterator<Item = PossiblePath<'_>> {
        let behind =
            |script: &Range<usize>| PossiblePath { parts: [&self.path[script.end..], &[]] };
        let around = |script: &Range<usize>| PossiblePath {
            parts: [&self.path[..script.start], &self.path[script.end..]],
        };
        let of_scripts = self.scripts.iter().flat_map(move |it| [behind(it), around(it)]);
        iter::once(PossiblePath { parts: [&self.path, &[]] }).chain(of_scripts)
    }

    /// The path without its first segment; `None` if no server takes this segment for a host.
    fn strip_host_segment(&self) -> Option<PossiblePath<'_>> {
        let host_and_rest = self.path.strip_prefix(b"/").filter(|_| self.may_have_host)?;
        let rest = &host_and_rest[memchr(b'/', host_and_rest).unwrap_or(host_and_rest.len())..];
        Some(PossiblePath { parts: [rest, &[]] })
    }
}

impl PossiblePath<'_> {
    /// Returns true if a server may read this path as `prefix`, or as a path below it. Reads no
    /// further than the prefix is long, apart from what servers ignore behind the names.
    pub fn is_at_or_below(&self, prefix: &str) -> bool {
        let [mut rest, mut second] = self.parts;
        prefix.split('/').filter(|name| !name.is_empty()).all(|name| {
            if rest.is_empty() {
                rest = mem::take(&mut second);
            }
            let segment = rest.strip_prefix(b"/").unwrap_or_default();
            let Some((start, behind)) = segment.split_at_checked(name.len()) else { return false };
            rest = match behind.first() {
                Some(byte) if IGNORED_BEHIND_NAME.contains(byte) => {
                    &behind[memchr(b'/', behind).unwrap_or(behind.len())..]
                }
                None | Some(b'/') => behind,
                Some(_) => return false,
            };
            start.eq_ignore_ascii_case(name.as_bytes())
        })
    }
}

/// Splits a target into the path and the query. The query starts with `?`, or is empty.
pub fn split_path_and_query(target: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr(b'?', target).unwrap_or(target.len());
    target.split_at(end)
}

/// Returns the query of a target, without the question marks at its start.
pub fn query_of(target: &[u8]) -> &[u8] {
    let query = split_path_and_query(target).1;
    // Some servers, such as PHP's built-in server, ignore further question marks before a name.
    let start = query.iter().position(|byte| *byte != b'?').unwrap_or(query.len());
    &query[start..]
}

/// Returns the text behind the first `;` of a path. Fastify took it for the query, up to version 4.
pub fn path_parameters_of(target: &[u8]) -> &[u8] {
    let (path, _) = split_path_and_query(target);
    memchr(b';', path).map_or(&[], |at| &path[at + 1..])
}

/// Returns the paths in which a query that begins with `/` follows the path. CodeIgniter takes
/// `/?/signup` and `/index.php?/signup` for `/index.php/signup`, and ends this path at a second
/// `?`. Another program may end the path at `&`, where parameters end. Nothing is returned for any
/// other query.
fn continue_path_with_query(path: &[u8], query: &[u8]) -> Vec<Vec<u8>> {
    let rest = match query_of(query) {
        [b'/', rest @ ..] | [b'%', b'2', b'F' | b'f', rest @ ..] => rest,
        _ => return Vec::new(),
    };
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let continue_with = |rest: &[u8]| [&path[..end], b"/", rest].concat();
    let before_mark = rest.split(|byte| *byte == b'?').next().unwrap_or_default();
    let before_both = before_mark.split(|byte| *byte == b'&').next().unwrap_or_default();
    let mut paths = vec![continue_with(before_mark)];
    if before_both.len() < before_mark.len() {
        paths.push(continue_with(before_both));
    }
    paths
}

/// `None` if servers disagree about where this path leads, or if reading it would take long.
fn read_text(path: Cow<'_, [u8]>) -> Option<ReadingsOfText<'_>> {
    list_spellings_of(path)?.into_iter().map(Reading::of).collect()
}

/// Returns true if a server that takes `\` for `/`, or that ignores control characters, may read a
/// dot segment, or if it would take long to find out.
fn may_have_dot_segment(path: &[u8]) -> bool {
    let has_dot_segment = |spelling: &Cow<'_, [u8]>| {
        let visible = without_control_characters(spelling);
        visible.split(|byte| matches!(byte, b'/' | b'\\')).any(is_dot_segment)
    };
    list_spellings_of(Cow::Borrowed(path)).is_none_or(|all| all.iter().any(has_dot_segment))
}

/// Returns true if a server that resolves dot segments may read this path as `prefix`, or as a path
/// below it. Some servers take `\` for `/`, and for some the first segment is a host.
fn may_resolve_to(path: &[u8], prefix: &str) -> bool {
    let names: Vec<&[u8]> =
        prefix.split('/').filter(|name| !name.is_empty()).map(str::as_bytes).collect();
    let may_have_host = matches!(path, [b'/', b'/' | b'\\', ..]);
    [&b"/"[..], b"/\\"].into_iter().any(|separators| {
        let segments = path.split(|byte| separators.contains(byte));
        may_segments_lead_to(segments, &names, may_have_host)
    })
}

/// See [`may_resolve_to`].
fn may_segments_lead_to<'s>(
    segments: impl Iterator<Item = &'s [u8]>,
    names: &[&[u8]],
    mut may_be_host: bool,
) -> bool {
    // At index N: what has been read may begin with the first N names, and has at least this many
    // segments behind them. `None` if it can't begin so.
    let mut counts_behind_names = vec![None; names.len() + 1];
    counts_behind_names[0] = Some(0_usize);
    for segment in segments {
        let visible = without_control_characters(segment);
        if is_blank(&visible) || name_without_parameters(&visible) == b"." {
            continue;
        }
        if is_dot_segment(&visible) {
            for named in 0..=names.len() {
                match counts_behind_names[named] {
                    Some(0) if named > 0 => counts_behind_names[named - 1] = Some(0),
                    count => counts_behind_names[named] = count.map(|it| it.saturating_sub(1)),
                }
            }
            continue;
        }
        // A program may read the segments behind its name only, or all others.
        let is_script = is_script(&visible);
        for named in (0..names.len()).rev() {
            let Some(count) = counts_behind_names[named] else { continue };
            if count == 0 && is_read_as(segment, names[named]) {
                counts_behind_names[named + 1] = Some(0);
            }
            counts_behind_names[named] = Some(count + usize::from(!is_script));
        }
        if is_script || may_be_host {
            counts_behind_names[0] = Some(0);
        }
        if counts_behind_names[names.len()].is_some() {
            return true;
        }
        may_be_host = false;
    }
    false
}

/// Returns true if a server may read this segment as `name`. Some servers ignore control
/// characters, and for some they end the name.
fn is_read_as(segment: &[u8], name: &[u8]) -> bool {
    let mut rest = segment;
    for wanted in name {
        let start = rest.iter().position(|byte| !byte.is_ascii_control()).unwrap_or(rest.len());
        match &rest[start..] {
            [byte, behind @ ..] if byte.eq_ignore_ascii_case(wanted) => rest = behind,
            _ => return false,
        }
    }
    rest.first().is_none_or(|byte| byte.is_ascii_control() || IGNORED_BEHIND_NAME.contains(byte))
}

fn without_control_characters(text: &[u8]) -> Cow<'_, [u8]> {
    match text.iter().any(u8::is_ascii_control) {
        true => text.iter().copied().filter(|byte| !byte.is_ascii_control()).collect(),
        false => Cow::Borrowed(text),
    }
}

/// Returns the path as it is, decoded once and twice, and each of these without session ids. `None`
/// if that would take long.
fn list_spellings_of(path: Cow<'_, [u8]>) -> Option<ArrayVec<Cow<'_, [u8]>, 6>> {
    let once = decode_if_encoded(&path);
    let twice = once.as_deref().and_then(decode_if_encoded);
    let all = [Some(path.as_ref()), once.as_deref(), twice.as_deref()];
    if all.iter().flatten().any(|reading| has_too_many_session_id_beginnings(reading)) {
        return None;
    }
    let without_ids = all.map(|it| it.and_then(remove_session_ids));
    let decoded = [once, twice].into_iter().chain(without_ids).flatten().map(Cow::Owned);
    Some(iter::once(path).chain(decoded).collect())
}

/// Returns true for a path that all servers read alike, apart from the case of letters. Such a path
/// has only letters, digits, `_` and `-` between single slashes.
fn is_plain_path(path: &[u8]) -> bool {
    let mut before = 0;
    path.iter().all(|byte| {
        let is_doubled = *byte == b'/' && before == b'/';
        before = *byte;
        !is_doubled && (byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-'))
    })
}

/// Returns true if a path for which [`is_plain_path`] holds is `prefix`, or below it.
fn is_plain_path_at_or_below(path: &[u8], prefix: &str) -> bool {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    path.split_at_checked(prefix.len()).is_some_and(|(start, rest)| {
        start.eq_ignore_ascii_case(prefix.as_bytes())
            && rest.first().is_none_or(|next| *next == b'/')
    })
}

/// Returns true for the name of a program such as `index.php`. Web servers pass the segments behind
/// the name to the program as `PATH_INFO` (RFC 3875 section 4.1.5), and the program takes
/// `PATH_INFO` for the path. Without a dot, a name such as `php` is that of a section of a site.
fn is_script(segment: &[u8]) -> bool {
    let name = name_without_parameters(segment);
    let end = name.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |at| at + 1);
    let Some(dot) = memrchr(b'.', &name[..end]) else { return false };
    let extension = &name[dot + 1..end];
    let is_php = extension.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"php"));
    is_php || SCRIPT_EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Removes the blank segments, and adds a missing `/` at the start. If the only blank segment is
/// the last one, the path stays as it is.
fn without_blank_segments(path: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    let last_slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or_default();
    let is_slash = |byte: &u8| *byte == b'/';
    let has_blank = last_slash > 0 && path[1..last_slash].split(is_slash).any(is_blank);
    if !has_blank && path.first() == Some(&b'/') {
        return path;
    }
    let mut kept = Vec::with_capacity(path.len() + 1);
    for segment in path.split(is_slash).filter(|segment| !is_blank(segment)) {
        kept.push(b'/');
        kept.extend_from_slice(segment);
    }
    Cow::Owned(kept)
}

/// Returns true for a segment that is empty, or that has only blanks before its parameters.
fn is_blank(segment: &[u8]) -> bool {
    name_without_parameters(segment).iter().all(|byte| *byte == b' ')
}

fn is_dot_segment(segment: &[u8]) -> bool {
    let name = name_without_parameters(segment);
    name.contains(&b'.') && name.iter().all(|byte| matches!(byte, b'.' | b' '))
}

fn name_without_parameters(segment: &[u8]) -> &[u8] {
    segment.split(|byte| matches!(byte, b';' | b':')).next().unwrap_or_default()
}

/// Removes session ids such as `(S(k3j2h1))`, each with the `/` before it. ASP.NET removes them
/// from a path before it looks for the page, even in the middle of a name (CVE-2023-36899). `None`
/// if the path has no session id.
fn remove_session_ids(path: &[u8]) -> Option<Vec<u8>> {
    path.windows(2).find(|pair| pair == b"))")?;
    let mut kept = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.iter().position(|byte| *byte == b'(') {
        let length = session_id_length(&rest[at..]);
        kept.extend_from_slice(&rest[..at + usize::from(length == 0)]);
        if length > 0 && kept.last() == Some(&b'/') {
            kept.pop();
        }
        rest = &rest[at + length.max(1)..];
    }
    kept.extend_from_slice(rest);
    (kept != path).then_some(kept)
}

/// Returns true for a path in which a search for session ids would take long.
fn has_too_many_session_id_beginnings(path: &[u8]) -> bool {
    let begins_id = |three: &&[u8]| {
        matches!(three[0], b'(' | b')') && three[1].is_ascii_alphabetic() && three[2] == b'('
    };
    path.windows(3).filter(begins_id).count() > MAX_SESSION_ID_BEGINNINGS
}

/// Returns the length of the session ids in one pair of brackets at the start of a text, such as
/// `(A(x)S(y))`. Returns 0 if the text does not start with session ids.
fn session_id_length(text: &[u8]) -> usize {
    let mut end = 1;
    loop {
        match &text[end..] {
            [letter, b'(', id @ ..] if letter.is_ascii_alphabetic() => {
                let Some(length) = memchr2(b')', b'/', id) else {
                    return 0;
                };
                if id[length] == b'/' {
                    return 0;
                }
                end += length + 3;
            }
            [b')', ..] if end > 1 => return end + 1,
            _ => return 0,
        }
    }
}

/// Decodes a path by [`decode_escapes`]. Where the path has letters beyond ASCII, it is in lower
/// case, and those that are ASCII letters in another case become ASCII. `None` if nothing changes.
fn decode_if_encoded(path: &[u8]) -> Option<Vec<u8>> {
    path.iter().find(|byte| **byte == b'%' || !byte.is_ascii())?;
    let decoded = decode_escapes(path);
    let folded = match decoded.is_ascii() {
        true => decoded,
        false => fold_case_of_bytes(&decoded),
    };
    (folded != path).then_some(folded)
}

/// Decodes percent-encoding, `%u0061` as IIS and Jetty read it, and overlong forms of ASCII
/// characters (RFC 3629 section 3).
fn decode_escapes(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, after @ ..] = rest {
        if let Some(c) = decode_percent_u(rest) {
            decoded.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[PERCENT_U_BYTES..];
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let byte = match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                rest = &after[2..];
                (high << 4 | low) as u8
            }
            _ => {
                rest = after;
                *first
            }
        };
        // An overlong form has two bytes, or three or four whose first bytes encode only zeros.
        let overlong = match (decoded.as_slice(), byte) {
            ([.., 0xf0, 0x80, last @ (0x80 | 0x81)], 0x80..=0xbf) => Some((3, last & 1)),
            ([.., 0xe0, last @ (0x80 | 0x81)], 0x80..=0xbf) => Some((2, last & 1)),
            ([.., last @ (0xc0 | 0xc1)], 0x80..=0xbf) => Some((1, last & 1)),
            _ => None,
        };
        match overlong {
            Some((length, high)) => {
                decoded.truncate(decoded.len() - length);
                decoded.push(high << 6 | byte & 0x3f);
            }
            None => decoded.push(byte),
        }
    }
    decoded
}

#[cfg(test)]
mod tests;
