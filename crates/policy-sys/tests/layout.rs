//! Rust's view of every policy struct is the C compiler's.
use plimsoll_policy_sys::*;

#[test]
fn every_struct_has_the_size_and_offsets_that_c_gives_it() {
    let mut index = 0;
    let mut structs = 0;
    macro_rules! check {
        ($name:ident, $type:ident, $($field:ident),*) => {
            assert_eq!(layout(index), std::mem::size_of::<$type>() as u64, "size of {}", stringify!($name));
            index += 1;
            $(
                assert_eq!(
                    layout(index),
                    std::mem::offset_of!($type, $field) as u64,
                    "offset of {}.{}", stringify!($name), stringify!($field)
                );
                index += 1;
            )*
            structs += 1;
        };
    }
    for_each_struct!(check);
    assert_eq!(layout(index), u64::MAX, "C knows more fields than Rust does");
    assert!(structs > 10);
}
