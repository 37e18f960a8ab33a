//! The form of a server action, as React's client sends it (`processReply` in react-server-dom).
//!
//! The arguments of the action are a JSON list in the part `0`. In the list, `$K1` stands for a
//! form whose fields have names such as `_1_email`; older versions of React write `1_email`. If a
//! browser sends the form without a script, the fields have their own names, and the arguments
//! before the form are in parts such as `$ACTION_1:1`.
//!
//! React's server accepts more than its client writes: any text behind `$K`, and references to
//! other parts. riskgate reads what the client writes. If it can't tell what the server reads, it
//! marks the body as unread.

use serde_json::Value;

use super::part::{Part, PartContext};
use crate::model::typed_address::has_at_sign;
use crate::screening::address_text::is_new_lone_address;
use crate::screening::content_type::Charset;
use crate::screening::field_values::{FieldValues, UnreadCause};
use crate::screening::json;
use crate::screening::server_parsers::{
    OtherParts, has_nameless_address, has_no_reference, is_name_of_arguments, may_be_arguments,
    may_have_reference,
};

/// The prefix of the parts that name an action and its arguments in a form without a script.
const BOUND_PREFIX: &str = "$ACTION_";
/// The most arguments that riskgate reads, to limit its work.
const MAX_ARGUMENTS: usize = 32;

/// Adds the values of the fields that React may pass to a server action. Does nothing if the parts
/// are not those of a server action.
pub(super) fn read_values(parts: &[Part<'_>], context: PartContext<'_>, found: &mut FieldValues) {
    if parts.iter().any(may_be_encoded_arguments) {
        found.mark_unread(UnreadCause::Broken);
    }
    let lists = json_of_parts(parts, is_name_of_arguments);
    let bound = json_of_parts(parts, |name| name.starts_with(BOUND_PREFIX));
    let forms = match lists.as_slice() {
        [] if bound.is_empty() => return,
        [list] => Forms::parse(list, parts),
        [..] => Forms::without_references_in(&lists),
    };
    let mut of_forms = FieldValues::default();
    let mut is_readable = forms.are_readable && bound.iter().all(|it| is_bound_as_written(it));
    let has_reference = lists.iter().any(|list| may_have_reference(list));
    for part in parts {
        let inner_names = part.names().filter_map(|name| forms.inner_name(name));
        let inner_names = context.names_to_compare(inner_names, &mut of_forms);
        part.read_field(&inner_names, context, &mut of_forms);
        is_readable &= !part.names().any(|name| {
            let may_be_of_action = has_reference || name.starts_with(BOUND_PREFIX);
            let may_be_field = || context.fields.iter().any(|it| it.may_be_behind_prefix(name));
            may_be_of_action && forms.inner_name(name).is_none() && may_be_field()
        });
    }
    found.append(of_forms);
    let may_be_form = forms.ids.is_empty() && bound.is_empty();
    for json in lists.iter().chain(&bound).filter(|it| json::is_json(it)) {
        let of_json = json::read_values(json, None, context.fields);
        is_readable &= of_json.unread.is_none();
        match may_be_form {
            true => of_json.values.iter().for_each(|value| found.push_text(value)),
            // The argument before a form is mostly the last answer of the action, which may repeat
            // the former value of the field. An action that reads this argument is rare.
            false => {
                let is_new = |text: &String| is_new_lone_address(text, &found.values);
                is_readable &= !of_json.values.iter().any(is_new);
            }
        }
        is_readable &= !json::may_satisfy(json, |it| has_nameless_address(it, &found.values));
    }
    if !is_readable {
        found.mark_unread(UnreadCause::Broken);
    }
}

/// Returns the contents that may be arguments, of the parts with such a name. React takes no file
/// for arguments.
fn json_of_parts<'b>(parts: &[Part<'b>], is_named: fn(&str) -> bool) -> Vec<&'b [u8]> {
    let is_text = |part: &&Part| !part.header.is_named_file;
    let texts = parts.iter().filter(is_text).filter(|part| part.names().any(is_named));
    texts.map(|part| part.content).filter(|content| may_be_arguments(content)).collect()
}

/// Returns true if riskgate can tell what an action reads of a part of a form without a script: the
/// action and where its arguments are, or some of the arguments.
fn is_bound_as_written(content: &[u8]) -> bool {
    let is_promise = |item: &Value| {
        let id = item.as_str().and_then(|text| text.strip_prefix("$@"));
        id.is_some_and(is_written_number)
    };
    let is_harmless = |item: &Value| has_no_reference(item, OtherParts::Texts);
    match json::parse(content) {
        Ok(Value::Object(members)) if members.contains_key("id") => true,
        Ok(Value::Array(items)) => items.iter().all(|it| is_promise(it) || is_harmless(it)),
        Ok(value) => is_harmless(&value),
        Err(_) => false,
    }
}

/// Returns true if a server that decodes the part, by its charset or its transfer encoding, may
/// read arguments that riskgate does not see.
fn may_be_encoded_arguments(part: &Part<'_>) -> bool {
    let is_named = |name: &str| is_name_of_arguments(name) || name.starts_with(BOUND_PREFIX);
    let is_other_text = part.header.charset != Charset::Utf8 && !part.content.is_ascii();
    !part.header.is_named_file
        && part.names().any(is_named)
        && (is_other_text || part.has_own_encoding())
}

/// Returns what the parts are to which an argument may refer by their numbers.
fn kind_of_numbered_parts(parts: &[Part<'_>]) -> OtherParts {
    let is_numbered = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit()) && name != "0";
    let mut numbered = parts.iter().filter(|part| part.names().any(is_numbered));
    match numbered.all(|part| part.header.is_named_file) {
        true => OtherParts::Files,
        false => OtherParts::Texts,
    }
}

/// The forms in the arguments of an action.
struct Forms {
    /// The numbers of the forms.
    ids: Vec<String>,
    /// Whether riskgate can tell what an action reads: React's client writes such arguments.
    are_readable: bool,
}

impl Forms {
    /// No form. If one of the texts may refer to a form, riskgate can't tell what an action reads.
    fn without_references_in(texts: &[&[u8]]) -> Forms {
        let are_readable = !texts.iter().any(|text| may_have_reference(text));
        Forms { ids: Vec::new(), are_readable }
    }

    fn parse(list: &[u8], parts: &[Part<'_>]) -> Forms {
        let mut forms = Forms { ids: Vec::new(), are_readable: true };
        let others = kind_of_numbered_parts(parts);
        let arguments = match json::parse(list) {
            Ok(Value::Array(arguments)) => arguments,
            Ok(Value::Object(members)) => {
                let is_harmless =
                    |it: &Value| has_no_reference(it, others) && !has_nameless_address(it, &[]);
                forms.are_readable = members.values().all(is_harmless);
                return forms;
            }
            Ok(_) | Err(_) => return Forms::without_references_in(&[list]),
        };
        forms.are_readable = arguments.len() <= MAX_ARGUMENTS;
        let mut texts_elsewhere = Vec::new();
        for argument in arguments.iter().take(MAX_ARGUMENTS) {
            let text = argument.as_str().unwrap_or_default();
            match (text.strip_prefix("$K"), text.strip_prefix("$@")) {
                (Some(id), _) if is_written_number(id) => forms.ids.push(id.to_owned()),
                (_, Some(id)) => texts_elsewhere.push(id),
                _ => forms.are_readable &= has_no_reference(argument, others),
            }
        }
        texts_elsewhere.sort_unstable();
        texts_elsewhere.dedup();
        forms.are_readable &= texts_elsewhere.into_iter().all(|id| is_text_in_part(id, parts));
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
        content.is_ok_and(|it| {
            it.as_str().is_some_and(|text| !text.contains('$') && !has_at_sign(text))
        })
    };
    named.peek().is_some() && named.all(is_text)
}
