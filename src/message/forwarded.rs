//! `Forwarded` (RFC 7239), read from the right.
//!
//! Each proxy appends one element at the right end, and a client can put anything to the left of
//! these elements. So riskgate parses from the right. An element that a proxy wrote by the grammar
//! then begins at the same comma, whatever the client has put before it. A quote that the client
//! opened hides no element, and a comma in a proxy's quoted string divides none.

use smol_str::SmolStr;

/// One element of `Forwarded`: what one proxy says about the hop before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardedElement {
    /// The value of `for`: the address of the hop, `unknown`, or a name. `None` without `for`.
    pub node: Option<SmolStr>,
    /// The value of `proto`: the scheme that the hop used. `None` without `proto`.
    pub scheme: Option<SmolStr>,
}

/// Iterates over the elements of one line of `Forwarded` from the right, without empty ones. Yields
/// `None` for an element that violates the grammar. If the grammar does not show where such an
/// element begins, the iteration ends.
pub fn iter_elements_from_right(line: &[u8]) -> impl Iterator<Item = Option<ForwardedElement>> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        loop {
            let (pairs, before) = match split_last_element(rest.take()?) {
                Some(split) => split,
                None => return Some(None),
            };
            rest = before;
            if !pairs.is_empty() {
                return Some(parse_element_of_pairs(&pairs));
            }
        }
    })
}

/// A parameter's name, and its value without quotes.
type Pair<'l> = (&'l [u8], Vec<u8>);
/// The pairs of an element, the last pair first, and the line before the element's comma. The line
/// is `None` if the element is the first one.
type LastElement<'l> = (Vec<Pair<'l>>, Option<&'l [u8]>);

/// Splits off the last element. Returns `None` if the element violates the grammar.
fn split_last_element(line: &[u8]) -> Option<LastElement<'_>> {
    let mut pairs = Vec::new();
    let mut rest = line.trim_ascii_end();
    loop {
        match rest {
            [] => return Some((pairs, None)),
            [before @ .., b','] => return Some((pairs, Some(before))),
            [before @ .., b';'] => rest = before.trim_ascii_end(),
            _ => {
                let (pair, before) = split_last_pair(rest)?;
                pairs.push(pair);
                rest = before.trim_ascii_end();
                // A separator must precede a pair, or the pair is the first one.
                if !matches!(rest, [] | [.., b',' | b';']) {
                    return None;
                }
            }
        }
    }
}

/// Splits off the last pair of a text. Returns `None` if the text does not end with a pair.
fn split_last_pair(text: &[u8]) -> Option<(Pair<'_>, &[u8])> {
    let (value, before) = match text {
        [quoted @ .., b'"'] => split_last_quoted(quoted)?,
        _ => {
            let (value, before) = split_last_run(text);
            (value.to_vec(), before)
        }
    };
    let before = before.trim_ascii_end().strip_suffix(b"=")?.trim_ascii_end();
    let (name, before) = split_last_run(before);
    (!name.is_empty()).then_some(((name, value), before))
}

/// Splits off the last run of bytes that neither separate nor quote. The run may contain bytes that
/// no token has: some proxies write the colon of a port without quotes.
fn split_last_run(text: &[u8]) -> (&[u8], &[u8]) {
    let separates = |byte: &u8| matches!(byte, b',' | b';' | b'=' | b'"' | b' ' | b'\t');
    let start = text.iter().rposition(separates).map_or(0, |at| at + 1);
    (&text[start..], &text[..start])
}

/// Splits off the content of a quoted string, and removes the backslashes that quote a byte. `text`
/// ends before the closing quote. The string begins at the last quote with an even number of
/// backslashes before it.
fn split_last_quoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    // Behind an odd number of backslashes, the quote would not close the string.
    if count_backslashes_at_end(text) % 2 == 1 {
        return None;
    }
    let mut end = text.len();
    let start = loop {
        let quote = text[..end].iter().rposition(|byte| *byte == b'"')?;
        if count_backslashes_at_end(&text[..quote]).is_multiple_of(2) {
            break quote;
        }
        end = quote;
    };
    let mut content = Vec::with_capacity(text.len() - start);
    let mut bytes = text[start + 1..].iter();
    while let Some(byte) = bytes.next() {
        content.push(if *byte == b'\\' { *bytes.next()? } else { *byte });
    }
    Some((content, &text[..start]))
}

fn count_backslashes_at_end(text: &[u8]) -> usize {
    text.iter().rev().take_while(|byte| **byte == b'\\').count()
}

/// Returns the element with the parameters that riskgate reads. `None` if one of these parameters
/// occurs twice, which RFC 7239 section 4 forbids, or is no UTF-8.
fn parse_element_of_pairs(pairs: &[Pair<'_>]) -> Option<ForwardedElement> {
    let mut element = ForwardedElement::default();
    for (name, value) in pairs {
        let kept = match name.to_ascii_lowercase().as_slice() {
            b"for" => &mut element.node,
            b"proto" => &mut element.scheme,
            _ => continue,
        };
        if kept.replace(std::str::from_utf8(value).ok()?.trim().into()).is_some() {
            return None;
        }
    }
    Some(element)
}

#[cfg(test)]
mod tests;
