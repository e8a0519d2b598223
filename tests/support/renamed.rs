//! TorchRec's names of tensors, and those of tables of networks of one's own, as those of facebookresearch/dlrm, so
//! that one definition of a model serves both.

/// The name of a tensor of a model whose top MLP has `top` layers; those of cross layers stay as they are.
pub fn renamed(name: &str, top: usize) -> String {
    let number = |text: &str| text.parse::<usize>().unwrap_or_else(|_| panic!("{name} has a number"));
    let parts: Vec<_> = name.split('.').collect();
    match parts[..] {
        ["sparse_arch", _, _, table, kind] => format!("emb_l.{}.{kind}", table.trim_start_matches("t_cat_")),
        ["sparse_arch", _, _, table, "proj", kind] => {
            format!("emb_l.{}.proj.{kind}", table.trim_start_matches("t_cat_"))
        }
        ["tables", table, "row_weights"] => format!("v_W_l.{table}"),
        ["tables", table, kind] => format!("emb_l.{table}.{kind}"),
        ["dense_arch", _, "_mlp", layer, _, kind] => format!("bot_l.{}.{kind}", 2 * number(layer)),
        ["over_arch", _, "0", "_mlp", layer, _, kind] => format!("top_l.{}.{kind}", 2 * number(layer)),
        ["over_arch", _, "1", kind] => format!("top_l.{}.{kind}", 2 * (top - 1)),
        _ => name.to_owned(),
    }
}
