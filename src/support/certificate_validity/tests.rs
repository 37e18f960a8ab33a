use super::CertificateValidity::{Expired, Later, NotYet, Soon};
use super::*;

#[test]
fn a_certificate_is_not_valid_yet_or_has_expired_or_expires_soon_or_later() {
    let now = 1_000 * SECONDS_PER_DAY;
    let judge = |begins_at, expires_at| {
        CertificateValidity::judge(ValidityPeriod { begins_at, expires_at }, now)
    };
    for (days, expected) in [(-3, Expired(3)), (0, Soon(0)), (13, Soon(13)), (14, Later(14))] {
        assert_eq!(judge(0, now + days * SECONDS_PER_DAY), expected);
    }
    assert_eq!(judge(0, now - 1), Expired(0));
    let end = now + 90 * SECONDS_PER_DAY;
    assert_eq!(judge(now, end), Later(90));
    for (begin, days) in [(now + 1, 0), (now + 2 * SECONDS_PER_DAY, 2)] {
        assert_eq!(judge(begin, end), NotYet(days));
        assert!(judge(begin, end).problem().is_some());
    }
    assert_eq!(judge(now, end).problem(), None);
}

#[test]
fn days_are_written_as_people_count_them() {
    for (validity, text) in [
        (Expired(0), "expired less than a day ago"),
        (Expired(1), "expired 1 day ago"),
        (Soon(0), "expires in less than a day"),
        (Soon(2), "expires in 2 days"),
        (NotYet(1), "becomes valid in 1 day"),
    ] {
        assert_eq!(validity.to_string(), text);
    }
}
