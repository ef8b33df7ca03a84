//! Enumerations that are numbers on the wire or in shared memory: one list serves both directions.

/// Defines an enumeration of octets and `from_code`, the way back from a number.
macro_rules! codes {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $code:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $variant = $code,)+ }

        impl $name {
            /// The one with this number.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use codes;
