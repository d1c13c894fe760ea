//! What the attribute makes of a function.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Ident, ItemFn, LitInt, LitStr, Token};

/// How many seeds a test runs if it says nothing.
const DEFAULT_SEEDS: u64 = 100;

/// The test that runs a function with many seeds.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream, Error> {
    let options: Options = syn::parse2(arguments)?;
    let function: ItemFn = syn::parse2(item)?;
    if function.sig.asyncness.is_some() || function.sig.inputs.len() != 1 {
        return Err(Error::new(
            function.sig.span(),
            "a simulated test is a function of one argument: `fn name(simulation: rocinante::sim::Simulation)`",
        ));
    }
    let Options {
        seeds,
        faults,
        check,
    } = options;
    let faults = faults.map(|faults| quote!(.faults(#faults)));
    let check = check.then(|| quote!(.check()));
    let (name, attributes) = (&function.sig.ident, &function.attrs);
    let body = ItemFn {
        attrs: Vec::new(),
        ..function.clone()
    };
    Ok(quote! {
        #(#attributes)*
        #[::core::prelude::v1::test]
        fn #name() {
            #body
            ::rocinante::sim::Seeds::new(#seeds) #faults #check .run(stringify!(#name), #name);
        }
    })
}

/// The arguments of the attribute.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    seeds: u64,
    faults: Option<String>,
    check: bool,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self, Error> {
        let mut options = Self {
            seeds: DEFAULT_SEEDS,
            faults: None,
            check: false,
        };
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            match name.to_string().as_str() {
                "seeds" => {
                    input.parse::<Token![=]>()?;
                    options.seeds = input.parse::<LitInt>()?.base10_parse()?;
                }
                "faults" => {
                    input.parse::<Token![=]>()?;
                    options.faults = Some(input.parse::<LitStr>()?.value());
                }
                "check" => options.check = true,
                _ => {
                    let known =
                        "the arguments are `seeds = 1000`, `faults = \"loss=1%\"` and `check`";
                    return Err(Error::new(name.span(), known));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<Options, Error> {
        syn::parse_str(text)
    }

    #[test]
    fn all_arguments_are_optional() {
        let nothing = options("").expect("nothing is needed");
        assert_eq!(
            (nothing.seeds, nothing.faults, nothing.check),
            (100, None, false)
        );
        let all = options("seeds = 1_000, faults = \"loss=1%\", check").expect("all of them");
        assert_eq!(
            (all.seeds, all.faults.as_deref(), all.check),
            (1000, Some("loss=1%"), true)
        );
    }

    #[test]
    fn a_mistake_is_an_error_that_names_the_arguments() {
        let error = options("seed = 5").expect_err("it is called `seeds`");
        assert!(error.to_string().contains("`seeds = 1000`"), "{error}");
        options("seeds = \"many\"").expect_err("a number");
        options("seeds = 5 check").expect_err("a comma is missing");
    }

    #[test]
    fn only_a_function_of_one_argument_is_a_test() {
        let expand = |text: &str| expand(TokenStream::new(), text.parse().expect("tokens"));
        expand("fn works(simulation: Simulation) {}").expect("a test");
        for wrong in [
            "fn nothing() {}",
            "async fn waits(simulation: Simulation) {}",
            "struct No;",
        ] {
            expand(wrong).expect_err(wrong);
        }
    }
}
