"""Trees that were published as lists of nodes, by name: Medusa's for Vicuna-7B, grown from the accuracies of its heads.

A node is its ranks from the root, a digit each: 01 is the second choice after the first one. The likeliest come first,
so a smaller budget takes the beginning. Source: Medusa (Cai et al. 2024, 2401.10774), its repository's tables.
"""

from __future__ import annotations

PUBLISHED = {
    "mc_sim_7b_63": (
        "0/00/1/01/2/000/10/02/3/03/4/04/20/05/001/5/06/6/07/010/11/7/08/002/30/09/8/9/100/020/12/003/40/21/004/005/"
        "0000/011/006/030/50/13/007/008/009/60/040/14/70/012/200/31/22/80/050/15/101/021/90/060/0001/16/070"
    ),
    "vicuna_7b_stage1": (
        "0/00/1/2/01/10/3/02/4/000/03/5/20/04/6/05/11/001/7/30/06/8/9/010/07/08/40/002/12/09/21/50/100/003/13/020/011/"
        "004/60/14/005/22/030/31/006/70/15/101/200/007/80/0000/41/012/040/90/021/23/16/008/050/32/51"
    ),
    "vicuna_7b_stage2": (
        "0/00/1/01/000/10/2/02/001/03/3/010/20/4/002/04/11/100/0000/5/003/05/020/30/011/06/6/07/004/40/12/08/7/030/"
        "0001/005/21/006/101/0010/200/50/09/012/8/040/021/13/007/0002/008/110/0100/60/9/013/0003/102/050/31/0020/70/14"
    ),
}
