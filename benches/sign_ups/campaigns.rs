//! Campaigns: the forms of somebody who makes many accounts.

use super::traffic::{Form, Random, START};

const FIRST_FORM_AT: i64 = START + 3 * 24 * 3_600;

/// A name, and the forms in their order.
pub type Campaign = (&'static str, Vec<Form>);

/// All campaigns.
pub fn list_campaigns(random: &mut Random) -> Vec<Campaign> {
    let mut campaigns = vec![
        draw("one inbox, a tag for each account", 500, 60, random, |n| {
            format!("the.boss+a{n}@gmail.com")
        }),
        draw("one inbox, dots", 499, 60, random, |n| {
            format!("{}@gmail.com", with_dots("thelongname", n + 1))
        }),
        draw("one new domain, 300 an hour", 2_000, 12, random, |n| {
            format!("u{n}@brandneumail-77.com")
        }),
        draw("80,000 in a week, 160 new domains one by one", 80_000, 7, random, |n| {
            format!("u{n}@quarzholz{}.com", (n / 500) % 160)
        }),
        draw("80,000 in a week, 160 new domains in turn", 80_000, 7, random, |n| {
            format!("u{n}@quarzholz{}.com", n % 160)
        }),
        draw("one an hour over 40 domains", 400, 3_600, random, |n| {
            format!("u{n}@lerchenau{}.com", n % 40)
        }),
    ];
    let client = random.client();
    let of_one_network =
        |n| Form::new(FIRST_FORM_AT + n as i64 * 10, format!("free.user{n}@outlook.com"), client);
    campaigns.push(("one network, free providers", (0..1_000).map(of_one_network).collect()));
    campaigns
}

/// Forms at this interval in seconds, each from another client.
fn draw(
    name: &'static str,
    count: usize,
    interval: i64,
    random: &mut Random,
    email: impl Fn(usize) -> String,
) -> Campaign {
    let forms = (0..count).map(|number| {
        Form::new(FIRST_FORM_AT + number as i64 * interval, email(number), random.client())
    });
    (name, forms.collect())
}

/// The name with a dot behind its n-th letter if the n-th bit of `bits` is set.
fn with_dots(name: &str, bits: usize) -> String {
    let mut dotted = String::new();
    for (at, letter) in name.char_indices() {
        if at > 0 && bits >> (at - 1) & 1 == 1 {
            dotted.push('.');
        }
        dotted.push(letter);
    }
    dotted
}
