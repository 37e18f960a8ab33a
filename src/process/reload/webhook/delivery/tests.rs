use std::sync::Mutex;

use super::*;

#[test]
fn nothing_is_left_out_if_no_thread_can_be_started() {
    let no_address_space_has_so_much = usize::MAX / 4;
    for stack_size in [100_000, no_address_space_has_so_much] {
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let create_thread = || Builder::new().stack_size(stack_size);
            let act = |item: &u32| done.lock().unwrap().push(*item);
            act_at_once(scope, create_thread, &[1, 2, 3], act);
        });
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, [1, 2, 3], "{stack_size}");
    }
}
