//! Choices by their names: an enum whose variants are called the same in code, on the command line and in files.

/// An enum from one list of variants and names: `ALL` in the order of the list, `name`, serde's and clap's values.
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $Name:ident { $($(#[$about:meta])* $Variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        $vis enum $Name {
            $($(#[$about])* #[serde(rename = $name)] $Variant,)+
        }

        impl $Name {
            /// All of them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$Variant),+];

            /// Its name, on the command line and in files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }
        }

        impl ::clap::ValueEnum for $Name {
            fn value_variants<'a>() -> &'a [Self] {
                &Self::ALL
            }

            fn to_possible_value(&self) -> Option<::clap::builder::PossibleValue> {
                Some(self.name().into())
            }
        }
    };
}

pub(crate) use named;
