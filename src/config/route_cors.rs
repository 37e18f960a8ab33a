//! `origins` and `[upstream.route.cors]`: what a route grants to pages of other origins.

use std::sync::Arc;

use super::counterparts::NAMES_OF_CORS_ORIGINS;
use super::description::toml_list;
use super::settings::Settings;
use crate::gate::route::RouteCors;
use crate::message::hop_by_hop::is_hop_by_hop;
use crate::message::response::CorsGrant;
use crate::model::origin::OriginPattern;
use crate::support::byte_sets::is_token_byte;

impl Settings {
    /// Reads `origins` and `[cors]` of a route. Reports `[cors]` without `origins`. Reports
    /// `origins` of a route with a key, because the origins of the keys decide there.
    pub(super) fn read_route_cors(
        &mut self,
        entry_key: &str,
        needs_key: bool,
    ) -> Option<RouteCors> {
        let key = format!("{entry_key}.origins");
        let expected = "a list of origins such as [\"https://app.example.com\"]";
        let origins = self.parse_list(&key, expected, |texts| {
            let patterns = texts.iter().map(|text| OriginPattern::parse(text).ok());
            patterns.collect::<Option<Vec<_>>>().filter(|patterns| !patterns.is_empty())
        });
        let has_origins = self.values.contains_key(&key);
        if origins.is_none() {
            self.amend_hints_of_list(&key, |texts, hint| {
                let has_all = texts.iter().any(|it| it == "*" || it.ends_with("://*"));
                let own = "name each origin: * would let every page read the answers";
                hint.or_else(|| has_all.then(|| own.to_owned())).or_else(|| {
                    let origins: Option<Vec<&str>> =
                        texts.iter().map(|it| origin_of_page(it)).collect();
                    let shown = toml_list(&origins?);
                    Some(format!("write {shown}: an origin has no path"))
                })
            });
        }
        if has_origins && needs_key {
            self.parse_setting(&key, "none where key is true: the keys decide", |_| None::<()>);
            let hint = "remove this line, and name the origins of each key with riskgate keys \
                        create --origin; or write key = false";
            self.replace_last_hint(hint.to_owned());
        }
        let section = format!("{entry_key}.cors");
        let has_section = self.section_spans.contains_key(&section);
        // Origins below `cors` are reported as unknown settings, with where to write them.
        let is_told = |name: &&str| self.values.contains_key(&format!("{section}.{name}"));
        if has_section && !has_origins && !NAMES_OF_CORS_ORIGINS.iter().any(is_told) {
            let problem = format!("expected origins beside it, {expected}, but found none");
            let hint = "write origins = [\"https://app.example.com\"] below [[upstream.route]], \
                        above its cors";
            self.report_at_section(&section, &problem, Some(hint.to_owned()));
        }
        let grant = has_section.then(|| self.read_cors_grant(&section));
        let grant = Arc::new(grant.unwrap_or_else(|| CorsGrant::new(None, &[], false)));
        Some(RouteCors { origins: origins?, grant })
    }

    fn read_cors_grant(&mut self, section: &str) -> CorsGrant {
        let is_field = |name: &String| {
            !name.is_empty()
                && name != "*"
                && name.bytes().all(is_token_byte)
                && !is_hop_by_hop(name.as_bytes())
        };
        let expected = "a list of names of header fields such as [\"X-Total\"], without * and \
                        fields of one connection";
        let fields = |names: &[String]| names.iter().all(is_field).then(|| names.to_vec());
        let allowed = self.parse_list(&format!("{section}.allow_headers"), expected, fields);
        let exposed = self.parse_list(&format!("{section}.expose_headers"), expected, fields);
        self.note_default(toml_list(&[]));
        let allows_credentials = self.read_boolean(&format!("{section}.credentials"), false);
        CorsGrant::new(allowed.as_deref(), &exposed.unwrap_or_default(), allows_credentials)
    }
}

/// Returns the origin of the URL of a page, which has a path.
fn origin_of_page(url: &str) -> Option<&str> {
    let authority = url.find("://")? + 3;
    let end = authority + url.get(authority..)?.find(['/', '?', '#'])?;
    url.get(..end).filter(|it| OriginPattern::parse(it).is_ok())
}
