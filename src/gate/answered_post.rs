//! Posts that riskgate answers itself, by what is in the body: a batch of domains, and an
//! assessment.

use std::time::Duration;

use http::Method;
use pingora::Result;
use pingora_proxy::Session;

use crate::model::refusal::Refusal;

use super::admission::OriginHeader;
use super::body_reading::{BodyBounds, read_whole_body};
use super::request_context::RequestContext;
use super::route::{Route, match_builtin_path, split_path_and_query};
use super::state::Gate;
use super::{assess, domain_batch};

/// The longest time from the gates before the quota to the end of the body.
const POST_BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// A post that riskgate answers itself.
#[derive(Clone, Copy)]
pub(super) enum AnsweredPost {
    DomainBatch,
    Assessment,
}

impl AnsweredPost {
    fn body_bounds(self) -> BodyBounds {
        let max_bytes = match self {
            AnsweredPost::DomainBatch => domain_batch::MAX_BATCH_BODY_BYTES,
            AnsweredPost::Assessment => assess::MAX_ASSESS_BODY_BYTES,
        };
        let too_long = self.refusal(format!("expected at most {max_bytes} bytes"));
        BodyBounds { max_bytes, timeout: POST_BODY_TIMEOUT, too_long }
    }

    /// The refusal of a body in which riskgate did not find what it expected.
    fn refusal(self, expected: String) -> Refusal {
        match self {
            AnsweredPost::DomainBatch => Refusal::InvalidBatch(expected),
            AnsweredPost::Assessment => Refusal::InvalidAssessment(expected),
        }
    }
}

impl Gate {
    /// Returns which post a request is; `None` if riskgate reads no body to answer it.
    pub(super) fn find_answered_post(&self, session: &Session) -> Option<AnsweredPost> {
        let header = session.req_header();
        if header.method != Method::POST {
            return None;
        }
        match match_builtin_path(split_path_and_query(header.raw_path()).0)? {
            Route::DomainBatch => Some(AnsweredPost::DomainBatch),
            Route::Assess => Some(AnsweredPost::Assessment),
            _ => None,
        }
    }

    /// Answers the request. riskgate runs the gates for key, origin and `max_per_client`, reads and
    /// parses the body, and then runs the gate for the quota.
    ///
    /// # Errors
    /// Returns an error if riskgate can't read from the client or can't write to it.
    pub(super) async fn answer_post(
        &self,
        post: AnsweredPost,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        let request = self.read_parts(session.req_header());
        let admitted = self.match_route_and_pass_gates(&request, ctx).map(drop);
        let mut held = self.begin_held_body(ctx);
        let has_origin_field = !matches!(request.origin, OriginHeader::Absent);
        let answered = match &admitted {
            Err(refusal) => Err(refusal.clone()),
            Ok(()) => match read_whole_body(session, post.body_bounds(), &mut held).await? {
                Err(refusal) => Err(refusal),
                Ok(body) => match post {
                    AnsweredPost::DomainBatch => {
                        self.answer_domain_batch(&body, &mut held, ctx).await
                    }
                    AnsweredPost::Assessment => self.assess(&body, has_origin_field, ctx).await,
                },
            },
        };
        let reply = match answered {
            Ok(reply) => {
                ctx.set_outcome_if_unset(reply.status(), "ok");
                reply
            }
            Err(refusal) => self.finish_with_refusal(&refusal, ctx),
        };
        ctx.send_reply(&reply, session).await
    }
}
