//! Deletes the sign-ups of one e-mail address.

use serde::Deserialize;
use serde_json::json;

use super::request::{ApiError, ApiRequest, json_response};
use super::{AdminApi, Answer, AuthorizedChange, MAX_EFFECT_WAIT};
use crate::management::{SignUpOwner, delete_sign_ups};
use crate::model::typed_address::TypedAddress;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignUpsBody {
    email: String,
}

impl AdminApi {
    pub(super) fn delete_sign_ups(
        &self,
        request: &ApiRequest,
        authorized: &AuthorizedChange<'_>,
    ) -> Answer {
        let SignUpsBody { email } = request.parse_body()?;
        // The text of the error contains no part of the address.
        let typed = TypedAddress::parse(&email)
            .map_err(|error| ApiError::invalid(format!("email: {error}")))?;
        let ring_index = self.ring_index()?;
        let accounts: Vec<&str> = ring_index.accounts.iter().map(|it| it.name.as_str()).collect();
        let secret_of_file = self.inputs.startup.inbox_secret.as_ref();
        let owner = SignUpOwner { address: &typed.address, secret_of_file, accounts: &accounts };
        let deleted =
            self.change_store_and_wait(|store| delete_sign_ups(store, &authorized.author, &owner))?;
        self.state.sign_ups.exchange_thread().request_turn_and_wait(MAX_EFFECT_WAIT);
        Ok(json_response(200, &json!({ "sign_ups": deleted })))
    }
}
