"""Written by tests/helpers/public_types.py: what the functions return, by what they are given.

Of numbers and arrays they return an array, and with an output among their operands an output. Where a graph
is the default one, what they make of numbers is an output, too: of that, type checkers know nothing.
"""

# A list of arrays fits the form for lists with outputs, too; the first form that fits is taken.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false

from stopgrad.ops.functions import contrastive_loss as contrastive_loss, cosine_similarity as cosine_similarity, hinge as hinge, huber as huber, info_nce as info_nce, kl_div as kl_div, kl_divergence as kl_divergence, l2_loss as l2_loss, listmle_loss as listmle_loss, listnet_loss as listnet_loss, log_cosh as log_cosh, log_poisson_loss as log_poisson_loss, margin_ranking_loss as margin_ranking_loss, mean_absolute_error as mean_absolute_error, mean_squared_error as mean_squared_error, pairwise_logistic_loss as pairwise_logistic_loss, poisson_loss as poisson_loss, sigmoid_cross_entropy_with_logits as sigmoid_cross_entropy_with_logits, sigmoid_focal_loss as sigmoid_focal_loss, smooth_labels as smooth_labels, softmax_cross_entropy_with_logits as softmax_cross_entropy_with_logits, softmax_focal_loss as softmax_focal_loss, sparse_softmax_cross_entropy_with_logits as sparse_softmax_cross_entropy_with_logits, squared_hinge as squared_hinge, triplet_margin_loss as triplet_margin_loss, weighted_cross_entropy_with_logits as weighted_cross_entropy_with_logits


