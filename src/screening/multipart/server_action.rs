//! The form of a server action, as React's client sends it (`processReply` in react-server-dom).
//!
//! The arguments of the action are a JSON list in the part `0`. In the list, `$K1` stands for a
//! form whose fields have names such as `_1_email`; older versions of React write `1_email`. If a
//! browser sends the form without a script, the fields have their own names, and the arguments
//! before the form are in parts such as `$ACTION_1:1`.
//!
//! React's server accepts more than its client writes: any text behind `$K`, and references to
//! other parts. riskgate reads what the client writes, and marks any other body as unread.

use serde_json::Value;

use super::part::{Part, PartContext};
use crate::screening::field_values::{FieldValues, UnreadCause};
use crate::screening::json;
use crate::screening::server_parsers::may_begin_json;

/// The prefix of the parts that name an action and its arguments in a form without a script.
const BOUND_PREFIX: &str = "$ACTION_";
/// The longest name of a part that riskgate compares with the fields, to limit its work.
const MAX_NAME_BYTES: usize = 256;
/// The most arguments that riskgate reads, to limit its work.
const MAX_ARGUMENTS: usize = 32;

/// Adds the values of the fields that React may pass to a server action. Does nothing if the parts
/// are not those of a server action.
pub(super) fn read_values(parts: &[Part<'_>], context: PartContext<'_>, found: &mut FieldValues) {
    let lists = json_of_parts(parts, is_number_of_list);
    let bound = json_of_parts(parts, |name| name.starts_with(BOUND_PREFIX));
    let forms = match lists.as_slice() {
        [] if bound.is_empty() => return,
        [] => Forms { ids: Vec::new(), are_readable: true },
        [list] => Forms::parse(list, parts),
        [..] => Forms { ids: Vec::new(), are_readable: false },
    };
    let mut of_action = FieldValues::default();
    let mut is_readable = forms.are_readable;
    for part in parts {
        let inner_names = part.names().filter_map(|name| forms.inner_name(name));
        part.read_field(
            &inner_names.map(str::to_owned).collect::<Vec<_>>(),
            context,
            &mut of_action,
        );
        is_readable &= !part.names().any(|name| {
            let may_be_of_action = !lists.is_empty() || name.starts_with(BOUND_PREFIX);
            may_be_of_action && forms.inner_name(name).is_none() && may_end_in_field(name, context)
        });
    }
    is_readable &=
        bound.iter().all(|it| json::parse(it).is_ok_and(|it| !has_nameless_address(&it)));
    found.append(of_action);
    for json in lists.iter().chain(&bound) {
        let of_json = json::read_values(json, None, context.fields);
        is_readable &= of_json.unread.is_none();
        match forms.ids.is_empty() && bound.is_empty() {
            true => of_json.values.iter().for_each(|value| found.push_text(value)),
            // The argument before a form is mostly the last answer of the action, which may repeat
            // the former value of the field. An action that reads this argument is rare.
            false => is_readable &= of_json.values.iter().all(|it| found.values.contains(it)),
        }
    }
    if !is_readable {
        found.mark_unread(UnreadCause::Broken);
    }
}

/// Returns the contents that may be JSON, of the parts with such a name.
fn json_of_parts<'b>(parts: &[Part<'b>], is_named: fn(&str) -> bool) -> Vec<&'b [u8]> {
    let named = parts.iter().filter(|part| part.names().any(is_named));
    named.map(|part| part.content).filter(|content| may_begin_json(content)).collect()
}

/// Returns true if React's server may take the part with this name for the list of arguments. The
/// server compares the name with 0 as JavaScript compares a text with a number, so `00` and `0x0`
/// are such names.
fn is_number_of_list(name: &str) -> bool {
    let is_of_number = |c: char| c.is_ascii_digit() || "+-.eExXoObB".contains(c);
    name.trim().starts_with(['0', '+', '-', '.']) && name.trim().chars().all(is_of_number)
}

/// Returns true if the text behind some prefix of the name is the name of a field.
fn may_end_in_field(name: &str, context: PartContext<'_>) -> bool {
    let is_field = |name: &str| context.fields.iter().any(|it| it.matches_form_name(name));
    name.len() > MAX_NAME_BYTES
        || name.match_indices(['_', ':']).any(|(at, _)| is_field(&name[at + 1..]))
}

/// The forms in the arguments of an action.
struct Forms {
    /// Their numbers.
    ids: Vec<String>,
    /// Whether riskgate can tell what an action reads: React's client writes such arguments, and
    /// none of them is an address without a name.
    are_readable: bool,
}

impl Forms {
    fn parse(list: &[u8], parts: &[Part<'_>]) -> Forms {
        let mut forms = Forms { ids: Vec::new(), are_readable: false };
        let Ok(Value::Array(arguments)) = json::parse(list) else { return forms };
        forms.are_readable = arguments.len() <= MAX_ARGUMENTS;
        for argument in arguments.into_iter().take(MAX_ARGUMENTS) {
            let text = argument.as_str().unwrap_or_default();
            match (text.strip_prefix("$K"), text.strip_prefix("$@")) {
                (Some(id), _) if is_written_number(id) => forms.ids.push(id.to_owned()),
                (_, Some(id)) => forms.are_readable &= is_text_in_part(id, parts),
                _ => {
                    forms.are_readable &=
                        has_no_reference(&argument) && !has_nameless_address(&argument);
                }
            }
        }
        forms
    }

    /// Returns the name of a field in one of the forms. `None` if the part is in none of them.
    fn inner_name<'n>(&self, name: &'n str) -> Option<&'n str> {
        let numbered = name.strip_prefix('_').unwrap_or(name);
        self.ids.iter().find_map(|id| numbered.strip_prefix(id.as_str())?.strip_prefix('_'))
    }
}

/// Returns true for a number of a part as React's client writes it, in hexadecimal digits.
fn is_written_number(id: &str) -> bool {
    u32::from_str_radix(id, 16).is_ok_and(|number| format!("{number:x}") == id)
}

/// Returns true if the part with this number has a text alone that is neither a reference nor an
/// address, such as the encrypted variables that Next.js binds to an action.
fn is_text_in_part(id: &str, parts: &[Part<'_>]) -> bool {
    let number = u32::from_str_radix(id, 16).ok().filter(|_| is_written_number(id));
    let Some(name) = number.map(|number| number.to_string()) else { return false };
    let mut named = parts.iter().filter(|part| part.names().any(|it| it == name)).peekable();
    let is_text = |part: &Part| {
        let content = json::parse(part.content);
        content.is_ok_and(|it| it.as_str().is_some_and(|text| !text.contains(['$', '@'])))
    };
    named.peek().is_some() && named.all(is_text)
}

/// Returns true for an address that is no member of an object. The action may take it for the
/// field.
fn has_nameless_address(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('@'),
        Value::Array(items) => items.iter().any(has_nameless_address),
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns true if no text in the value stands for another part, by the first characters of the
/// text: `$$` is an escaped `$`, `$D` is a date, `$n` is a large number, `$B` is a file, and the
/// others are `undefined`, `Infinity`, `NaN`, `-0` and `-Infinity`.
fn has_no_reference(value: &Value) -> bool {
    match value {
        Value::String(text) => text
            .strip_prefix('$')
            .is_none_or(|behind| behind.starts_with(['$', 'D', 'n', 'B', 'u', 'I', 'N', '-'])),
        Value::Array(items) => items.iter().all(has_no_reference),
        Value::Object(members) => members.values().all(has_no_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}
