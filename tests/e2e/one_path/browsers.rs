//! What a page in a browser posts and may read: forms, origins, sign-up pages.

mod admin_page;
mod form_parsers;
pub mod sign_up_page;
