"""The recipe's folder; `xsp_post.recipes.install` copies it."""
