"""Hints for names of TensorFlow, JAX, NumPy and PyTorch that this package does not have."""

from __future__ import annotations

import difflib
from collections.abc import Collection

_OURS = {
    # arithmetic and rounding
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div true_divide",
    "truncatemod": "fmod rem",
    "negative": "neg",
    "abs": "absolute fabs",
    "trunc": "fix truncate",
    "round": "around round_",
    "sign": "sgn",
    "pow": "power float_power integer_pow",
    "atan2": "arctan2",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "add_n": "accumulate_n",
    "lgamma": "gammaln",
    "digamma": "psi",
    "erfinv": "erf_inv",
    # comparisons and bits
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "invert": "bitwise_not",
    "left_shift": "shift_left",
    "right_shift": "shift_right shift_right_arithmetic",
    "bitwise_xor": "xor",
    # reductions
    "reduce_sum": "sum",
    "reduce_mean": "mean average",
    "reduce_max": "max amax",
    "reduce_min": "min amin",
    "reduce_prod": "prod product",
    "reduce_any": "any",
    "reduce_all": "all",
    "reduce_variance": "var variance",
    "reduce_std": "std",
    "reduce_logsumexp": "logsumexp",
    "argmax": "arg_max",
    "argmin": "arg_min",
    # shapes
    "expand_dims": "unsqueeze expanddims",
    "transpose": "permute movedim t",
    "broadcast_to": "expand expand_as broadcast",
    "concat": "cat concatenate vstack hstack dstack row_stack column_stack",
    "stack": "pack",
    "unstack": "unbind unpack",
    "split": "chunk array_split tensor_split hsplit vsplit dsplit split_with_sizes",
    "reverse": "flipud fliplr rev",
    "reshape": "view view_as ravel flatten",
    "size": "numel",
    # values
    "cast": "to_float to_double to_int32 to_int64 to_bfloat16 convert_element_type type_as",
    "range": "arange iota",
    "print": "Print",
    "where": "select where_v2 choose",
    "constant": "asarray array tensor as_tensor from_numpy",
    "identity": "clone copy Identity",
    "parameter": "Variable variable get_variable Parameter",
    "placeholder": "ShapeDtypeStruct TensorSpec",
    "conj": "conjugate",
    # choosing
    "gather": "index_select",
    "take_along_axis": "take_along_dim",
    "top_k": "topk kthvalue approx_max_k",
    "clip_by_value": "clamp hardtanh",
    # products
    "matmul": "mm bmm dot_product batch_matmul dot inner addmm mv",
    # networks
    "sigmoid": "expit logistic",
    "log_sigmoid": "logsigmoid",
    "silu": "SiLU",
    "relu": "ReLU",
    "gelu": "GELU",
    "softmax": "Softmax",
    "log_softmax": "LogSoftmax",
    "softmax_cross_entropy_with_logits": "softmax_cross_entropy softmax_cross_entropy_with_logits_v2",
    "sparse_softmax_cross_entropy_with_logits": "cross_entropy CrossEntropyLoss",
    "sigmoid_cross_entropy_with_logits": "binary_cross_entropy_with_logits BCEWithLogitsLoss",
    "mean_squared_error": "mse_loss MSELoss mse",
    "layer_norm": "LayerNorm layer_normalization",
    "conv1d": "Conv1d Conv1D",
    "conv2d": "Conv2d Conv2D conv_general_dilated",
    "max_pool2d": "MaxPool2d MaxPool2D",
    "avg_pool2d": "AvgPool2d AvgPool2D",
    "dropout": "Dropout",
    "embedding_lookup": "embedding embedding_bag EmbeddingBag",
    "batch_normalization": "batch_norm BatchNorm BatchNorm1d "
    "BatchNorm2d BatchNorm3d BatchNormalization SyncBatchNorm",
    "group_norm": "GroupNorm",
    "instance_norm": "InstanceNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d",
    "rms_norm": "RMSNorm",
    "lrn": "local_response_norm LocalResponseNorm",
    "lstm": "LSTM",
    "lstm_cell": "LSTMCell",
    "gru": "GRU",
    "gru_cell": "GRUCell",
    "simple_rnn": "RNN SimpleRNN rnn_tanh",
    "simple_rnn_cell": "RNNCell rnn_tanh_cell",
    "ctc_loss": "CTCLoss",
    "huber": "huber_loss HuberLoss smooth_l1_loss SmoothL1Loss Huber",
    "mean_absolute_error": "l1_loss L1Loss mae",
    "kl_div": "KLDivLoss",
    "cosine_similarity": "CosineSimilarity cosine_embedding_loss",
    "triplet_margin_loss": "TripletMarginLoss",
    "margin_ranking_loss": "MarginRankingLoss",
    "hinge": "hinge_loss hinge_embedding_loss",
    "poisson_loss": "poisson_nll_loss PoissonNLLLoss",
    "scaled_dot_product_attention": "dot_product_attention attention",
    "adaptive_avg_pool": "adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d AdaptiveAvgPool1d AdaptiveAvgPool2d",
    "adaptive_max_pool": "adaptive_max_pool1d adaptive_max_pool2d "
    "adaptive_max_pool3d AdaptiveMaxPool1d AdaptiveMaxPool2d",
    "global_avg_pool": "GlobalAveragePooling2D",
    "avg_pool1d": "AvgPool1d",
    "avg_pool3d": "AvgPool3d",
    "max_pool1d": "MaxPool1d",
    "max_pool3d": "MaxPool3d",
    "conv1d_transpose": "conv_transpose1d ConvTranspose1d",
    "conv2d_transpose": "conv_transpose2d ConvTranspose2d Conv2DTranspose",
    "conv3d_transpose": "conv_transpose3d ConvTranspose3d",
    "conv3d": "Conv3d Conv3D",
    "depthwise_conv2d": "DepthwiseConv2D",
    "depth_to_space": "pixel_shuffle PixelShuffle",
    "space_to_depth": "pixel_unshuffle PixelUnshuffle",
    "resize": "interpolate upsample Upsample grid_sample",
    "leaky_relu": "LeakyReLU",
    "elu": "ELU",
    "selu": "SELU",
    "celu": "CELU",
    "glu": "GLU",
    "mish": "Mish",
    "hard_sigmoid": "hardsigmoid Hardsigmoid",
    "hard_swish": "hardswish Hardswish hard_silu",
    "hard_tanh": "Hardtanh",
    "relu6": "ReLU6",
    "softsign": "soft_sign Softsign",
    "softplus": "Softplus",
    "tanh": "Tanh",
    "diag_part": "diagonal",
    "diag": "diagflat diag_embed",
    "matrix_transpose": "swapdims",
    "moveaxis": "rollaxis",
    "meshgrid": "mgrid ogrid indices cartesian_prod",
    "expm": "matrix_exp",
    "pinv": "pinverse",
    "triangular_solve": "solve_triangular",
    "cholesky_solve": "cho_solve",
    "searchsorted": "bucketize",
    "histogram_fixed_width": "histogram histc",
    "result_type": "promote_types",
    "bessel_i0": "i0",
    "bessel_i0e": "i0e",
    "cumulative_logsumexp": "logcumsumexp",
    "segment_sum": "segment_reduce",
    "scatter_add": "index_add",
    "scatter_update": "index_put index_fill",
    "scatter_nd": "scatter",
    "repeat": "repeat_interleave",
    "argsort": "lexsort argpartition msort",
    "sort": "partition sort_complex",
    "polyval": "poly",
    "slice": "narrow",
    "fft.ifft": "ifft",
    "fft.rfft": "rfft",
    "fft.irfft": "irfft",
    "fft.fftn": "fftn fft2",
    "fft.ifftn": "ifftn ifft2",
    "fft.rfftn": "rfft2",
    "fft.fftfreq": "fftfreq",
    "fft.fftshift": "fftshift",
    "tree.map": "tree_multimap",
    "save": "savez save_file dump",
    "load": "load_file restore",
    "debug_callback": "io_callback host_callback",
    # random numbers
    "random_key": "PRNGKey key default_rng manual_seed set_seed set_random_seed seed Generator",
    "random_normal": "randn normal randn_like rand_normal",
    "random_uniform": "rand uniform rand_like",
    "random_permutation": "permutation randperm",
    "random_categorical": "categorical multinomial",
    "random_fold_in": "fold_in",
    "random_integers": "randint",
    "random_shuffle": "shuffle",
    "random_choice": "choice",
    "random_bernoulli": "bernoulli",
    "random_truncated_normal": "truncated_normal trunc_normal_",
    "random_poisson": "poisson",
    "random_dirichlet": "dirichlet",
    "random_gumbel": "gumbel",
    "random_laplace": "laplace",
    "random_exponential": "exponential",
    # gradients and transforms
    "stop_gradient": "detach BlockGrad",
    "no_gradient": "no_grad inference_mode stop_recording",
    "gradients": "GradientTape",
    "grad": "gradient",
    "value_and_grad": "grad_and_value value_and_gradient",
    "custom_gradient": "custom_grad",
    "jacobian": "jacrev jacfwd jacobians batch_jacobian",
    "hessian": "hessians",
    "checkpoint": "remat recompute_grad checkpoint_sequential",
    "vmap": "vectorized_map pmap xmap vectorize apply_along_axis frompyfunc",
    "check_gradients": "gradcheck gradgradcheck check_grads compute_gradient",
    "function": "jit compile pjit make_jaxpr script",
    "straight_through": "grad_pass_through straight_through_estimator",
    "reverse_gradient": "gradient_reversal grad_reverse",
    "clip_gradient_norm": "clip_grad_norm clip_grad_norm_",
    "clip_gradient": "clip_grad_value_",
    # control flow
    "scan": "foldl foldr",
    "switch": "switch_case case",
    # dtypes and errors
    "float16": "half HalfTensor",
    "float32": "float float_ FloatTensor single",
    "float64": "double DoubleTensor",
    "int32": "int int_ IntTensor intc",
    "int64": "long LongTensor longlong",
    "int16": "short ShortTensor",
    "int8": "CharTensor",
    "uint8": "byte ByteTensor ubyte",
    "complex64": "cfloat csingle",
    "complex128": "cdouble complex_",
    "DType": "dtype as_dtype",
    "Output": "Tensor ndarray Array",
    "Session": "InteractiveSession",
    "name_scope": "variable_scope",
}
"""The names that other libraries have for a function, by our name."""

_IN_ITSELF = "functions stand in sg itself, as in sg.{}"

_ADVICE = {
    **dict.fromkeys(
        ("optim", "train", "Adam", "AdamW", "SGD", "GradientDescentOptimizer"),
        "steps of training stand in sg.optimizers, as sg.optimizers.adamw(loss, parameters)",
    ),
    **dict.fromkeys(
        ("py_function", "py_func", "numpy_function", "pure_callback"),
        "a graph holds no Python functions: fetch with sg.Session.run, and feed what the function gives",
    ),
    **dict.fromkeys(
        ("keras", "layers"),
        "there are no layers: a layer is a function of parameters and inputs, as in sg.matmul(x, w) + b",
    ),
    **dict.fromkeys(
        ("global_variables_initializer", "local_variables_initializer", "initialize_all_variables"),
        "parameters have their first values when sg.Session is made; leave it out",
    ),
    **dict.fromkeys(
        ("device", "devices", "device_put", "cuda", "default_device", "set_default_device"),
        "engines place what they run; sg.function and sg.Session take engine=",
    ),
    "distribute": "sg.Session and sg.function take mesh=, and sg.distributed joins several processes",
    "debug": "sg.print and sg.debug_callback",
    "flatnonzero": "its shape would depend on the data; choose with sg.where(condition, x, y)",
    "enable_eager_execution": "outside of a sg.Graph, functions compute at once; leave it out",
    **dict.fromkeys(
        ("disable_eager_execution", "disable_v2_behavior"),
        "inside 'with sg.Graph().as_default():' operations are built; leave it out",
    ),
    **dict.fromkeys(
        ("compat", "v1"), "leave it out: sg.placeholder, sg.Session and sg.gradients stand in sg itself"
    ),
    **dict.fromkeys(
        ("RegisterGradient", "NotDifferentiable"), "sg.custom_gradient gives a function its own gradient"
    ),
    **dict.fromkeys(
        ("tree_util", "nest", "pytree"), "functions of structures stand in sg.tree, as in sg.tree.map"
    ),
    **dict.fromkeys(
        ("fmax", "fmin"), "sg.maximum and sg.minimum hand NaN on; choose with sg.where(sg.is_nan(x), y, ...)"
    ),
    **dict.fromkeys(("nansum", "nanmean"), "reduce sg.where(sg.is_nan(x), 0, x), as with sg.reduce_sum"),
    **dict.fromkeys(
        ("binary_cross_entropy", "BCELoss"),
        "take sg.sigmoid_cross_entropy_with_logits of what sg.sigmoid would be applied to",
    ),
    "nll_loss": "take sg.sparse_softmax_cross_entropy_with_logits of what sg.log_softmax would be applied to",
    "optimization_barrier": "engines reorder nothing that could be seen; leave it out",
    "trapz": "write sg.reduce_sum((y[1:] + y[:-1]) / 2 * dx)",
    **{name: _IN_ITSELF.format("exp") for name in ("math", "numpy", "np", "jnp", "lax", "bitwise")},
    **{name: _IN_ITSELF.format("erf") for name in ("special",)},
    **dict.fromkeys(("functional", "F", "activations"), "these functions stand in sg.nn, as in sg.nn.relu"),
    "image": _IN_ITSELF.format("max_pool2d"),
    "autograd": "sg.grad and sg.gradients differentiate; sg.custom_gradient gives a gradient of one's own",
    "func": "transforms stand in sg itself: sg.grad, sg.vjp, sg.jvp, sg.jacobian, sg.vmap",
    "Module": "there are no modules: a model is a function of a nested structure of parameters; see sg.grad",
    "Sequential": "there are no modules: a model is a function of parameters and inputs; see sg.grad",
    "Linear": "there are no layers: write sg.matmul(x, w) + b",
    "Dense": "there are no layers: write sg.matmul(x, w) + b",
    "Embedding": "there are no layers: write sg.gather(table, ids)",
    "metrics": "there are no metrics: write sg.reduce_mean(sg.cast(sg.equal(a, b), sg.float32))",
    "initializers": "draw first values with sg.random_normal(shape, key), and pass them to sg.parameter",
    "trainable_variables": "keep what sg.parameter returns in a list or dict of your own",
    "get_default_graph": "hold on to the sg.Graph that you made; x.op.graph is that of an output",
    "ConfigProto": "sg.Session takes engine= and strict=",
    "get_default_session": "hold on to the sg.Session that you made",
    "executing_eagerly": "functions compute at once outside of a sg.Graph and of sg.function",
    "config": "sg.function and sg.Session take engine= and strict=; there is no global configuration",
    "device_get": "results of sg.function are NumPy arrays already; leave it out",
    "block_until_ready": "results of sg.function are NumPy arrays already; leave it out",
    **dict.fromkeys(
        ("Dataset", "DataLoader"), "sg.data.batches reads arrays, and anything with len() and brackets"
    ),
    "io": "read files with NumPy; a sg.Graph has save and load",
    "saved_model": "a sg.Graph has save and load",
    "summary": "sg.explain shows what a gradient passes; a sg.Graph has to_text",
    "Assert": "check arrays in Python; sg.assert_flows and sg.assert_blocked check gradients",
    "enable_grad": "a gradient is built where sg.gradients or sg.grad asks for it; leave it out",
    "set_grad_enabled": "take 'with sg.no_gradient():', or sg.stop_gradient(x, when=...)",
    "is_grad_enabled": "a gradient is built where sg.gradients or sg.grad asks for it",
    "requires_grad": "name the tensors in sg.gradients(y, [x]) or the argument in sg.grad(f, argnums=0)",
    "backward": "sg.gradients(loss, [w]) builds gradients; sg.grad(f) makes a function of them",
    "UnconnectedGradients": "write unconnected_gradients='none' or 'zero' in sg.gradients",
    "control_dependencies": "fetch all that is to be computed in one sg.Session.run",
    "AUTO_REUSE": "a parameter is an object: use what sg.parameter returned",
    "linearize": "sg.jvp and sg.vjp differentiate at a point",
    "linear_transpose": "sg.vjp of a linear function is its transpose",
    "eval_shape": "an output has dtype and shape without being computed; sg.Graph().as_default() builds one",
    "masked_select": "its shape would depend on the data; choose with sg.where(mask, x, 0)",
    "masked_fill": "write sg.where(mask, value, x)",
    "newaxis": "None is, as in x[:, None]; or sg.expand_dims",
    "pi": "Python has math.pi and np.pi",
    "e": "Python has math.e; sg.exp(1.0) is a tensor",
    "inf": "Python has math.inf and np.inf",
    "nan": "Python has math.nan and np.nan",
    "is_tensor": "isinstance(x, sg.Output) says whether x is one of a graph; all else is NumPy's",
    "is_complex": "x.dtype.is_complex says so",
    "is_floating_point": "x.dtype.is_floating says so",
    "issubdtype": "x.dtype has is_floating, is_integer, is_complex and is_bool",
    "allclose": "np.allclose compares arrays; a tensor: sg.reduce_all(sg.abs(a - b) < 1e-6)",
    "array_equal": "np.array_equal compares arrays; a tensor: sg.reduce_all(sg.equal(a, b))",
    "isclose": "write sg.abs(a - b) <= atol + rtol * sg.abs(b)",
    "sinc": "write sg.where(x == 0, 1, sg.sin(x) / sg.where(x == 0, 1, x)) with x times math.pi",
    "heaviside": "write sg.cast(x > 0, sg.float32)",
    "deg2rad": "write x * (math.pi / 180)",
    "rad2deg": "write x * (180 / math.pi)",
    "frexp": "sg.log2 and sg.floor give the exponent",
    "ldexp": "write x * sg.exp2(n)",
    "fill_": "tensors do not change: sg.full makes a new one",
    "zero_": "tensors do not change: sg.zeros_like makes a new one",
    "empty": "take sg.zeros; no memory is left unset",
    "empty_like": "take sg.zeros_like; no memory is left unset",
    "assign_add": "write sg.assign(w, w + delta)",
    "assign_sub": "write sg.assign(w, w - delta)",
    **dict.fromkeys(
        ("median", "percentile", "quantile", "nanmedian", "nanpercentile", "nanquantile"),
        "take the elements of sg.sort(x, axis) at the place, or np.quantile of what was fetched",
    ),
    **dict.fromkeys(
        ("nanmax", "nanmin", "nanprod", "nanstd", "nanvar", "nancumsum"),
        "fill first, as sg.where(sg.is_nan(x), 0, x)",
    ),
    "nan_to_num": "write sg.where(sg.is_finite(x), x, 0.0)",
    **dict.fromkeys(("logspace", "geomspace"), "write sg.exp(sg.linspace(math.log(a), math.log(b), n))"),
    **dict.fromkeys(("atleast_1d", "atleast_2d", "atleast_3d", "unflatten"), "write sg.reshape(x, shape)"),
    "vdot": "write sg.reduce_sum(sg.conj(x) * y); sg.vecdot goes along an axis",
    **dict.fromkeys(("convolve", "correlate"), "take sg.conv1d, with axes of a batch and of channels"),
    **dict.fromkeys(
        ("hann_window", "hamming_window", "hanning", "hamming", "blackman", "bartlett", "kaiser"),
        "NumPy has windows: np.hanning(n) is an array that can be used as it is",
    ),
    **dict.fromkeys(
        ("tril_indices", "triu_indices", "diag_indices", "tri", "vander"),
        "NumPy has it: np.tril_indices(n) gives arrays, with which x[...] can be indexed",
    ),
    **dict.fromkeys(("insert", "append", "delete"), "join what stays: sg.concat([x[:i], new, x[i:]], axis)"),
    **dict.fromkeys(("put", "put_along_axis", "place", "fill_diagonal"), "write x.at[index].set(value)"),
    "ndim": "x.ndim says it",
    **dict.fromkeys(("iscomplexobj", "isrealobj", "iscomplex", "isreal"), "x.dtype.is_complex says it"),
    **dict.fromkeys(("prelu", "PReLU"), "write sg.where(x > 0, x, slope * x)"),
    **dict.fromkeys(("linear", "bilinear", "baddbmm"), "write x @ w + b; sg.einsum takes any products"),
    "lerp": "write x + t * (y - x)",
    **dict.fromkeys(
        ("standardize",), "write (x - mean) / sg.sqrt(variance), with both of sg.moments(x, axes)"
    ),
    "logit": "write sg.log(p / (1 - p))",
    **dict.fromkeys(
        ("gumbel_softmax",), "write sg.softmax((logits + sg.random_gumbel(shape, key)) / temperature)"
    ),
    **dict.fromkeys(("cov", "corrcoef"), "write x = x - sg.reduce_mean(x, 0), and x.T @ x / (n - 1)"),
    **dict.fromkeys(
        ("std_mean", "var_mean"), "it is sg.moments(x, axes), or sg.reduce_std and sg.reduce_mean"
    ),
    **dict.fromkeys(("piecewise", "boolean_dispatch"), "choose with sg.where, or sg.switch for functions"),
    **dict.fromkeys(("lu", "lu_solve", "lu_factor"), "sg.solve and sg.det factorise by themselves"),
    **dict.fromkeys(
        ("stft", "istft", "signal"), "sg.fft has transforms; cut frames with x[...] and multiply by a window"
    ),
    **dict.fromkeys(
        ("string", "strings", "text", "as_string"),
        "there are no tensors of text: keep text in Python, and numbers of words in tensors",
    ),
    "ragged": "there are no ragged tensors: pad them, and mask with sg.where",
    "sparse": "there are no sparse tensors: gather with sg.gather, and add up with sg.scatter_add",
    **dict.fromkeys(
        ("interp", "polyfit", "roots", "unwrap"), "take np.interp and the like, of what was fetched"
    ),
    **dict.fromkeys(
        ("state_dict", "load_state_dict", "save_weights"),
        "sg.save and sg.load take a structure of arrays; a sg.Session saves its parameters",
    ),
    **dict.fromkeys(
        ("init", "glorot_uniform", "xavier_uniform_", "kaiming_normal_"),
        "draw first values: sg.random_normal(shape, key) * scale",
    ),
    **dict.fromkeys(
        ("ModuleList", "ModuleDict", "ParameterList", "ParameterDict"),
        "there are no modules: keep parameters in a list or dict, which sg.grad takes",
    ),
    **dict.fromkeys(
        ("MultiheadAttention", "Transformer", "TransformerEncoderLayer"),
        "there are no layers: sg.scaled_dot_product_attention is the operation",
    ),
    **dict.fromkeys(("autocast", "amp", "GradScaler"), "cast to sg.bfloat16 with sg.cast where it pays"),
    **dict.fromkeys(("named_scope", "named_call"), "it is sg.name_scope"),
    **dict.fromkeys(
        ("disable_jit", "run_eagerly", "run_functions_eagerly"),
        "call the function without sg.function: it computes at once",
    ),
    **dict.fromkeys(
        ("assert_equal", "assert_greater", "assert_less", "debugging", "ensure_shape"),
        "shapes are known while tracing: use Python's assert; values: sg.debug_callback(check, x)",
    ),
    **dict.fromkeys(("pad_sequence", "pack_padded_sequence"), "pad with sg.pad, and mask with sg.where"),
    **dict.fromkeys(
        ("shard_map", "make_mesh", "NamedSharding"),
        "sg.Mesh and sharding= of sg.function and sg.Session say where things lie",
    ),
    "Flatten": "write sg.reshape(x, [n, -1])",
    "identity_n": "sg.identity of each",
    "ifelse": "sg.cond",
    "reduce": "sg.reduce_sum, sg.reduce_max and others reduce; sg.scan takes any function",
    "accumulate": "sg.cumsum and sg.cumprod; sg.scan takes any function",
    "profiler": "a sg.Session says which engine ran; JAX's profiler sees what the xla engine runs",
    "set_printoptions": "arrays are NumPy's: np.set_printoptions",
    "SparseTensor": "there are no sparse tensors: gather with sg.gather, and add up with sg.scatter_add",
    "IndexedSlices": "gradients are dense: that of sg.gather has the shape of its operand",
    "RaggedTensor": "there are no ragged tensors: pad them, and mask with sg.where",
    "TensorArray": "sg.scan and sg.map_fn stack what each step gives; sg.stack joins a list",
}
"""Advice for names that correspond to no single name of ours."""

OF_OUTPUTS = {
    "detach": "sg.stop_gradient(x)",
    "detach_": "sg.stop_gradient(x)",
    "stop_gradient": "sg.stop_gradient(x)",
    "clone": "sg.identity(x); tensors do not change",
    "contiguous": "x itself: how it lies in memory is the engine's concern",
    **dict.fromkeys(
        ("numpy", "eval", "cpu", "value", "read_value", "block_until_ready"),
        "known when the graph runs: fetch it, with sg.Session(graph).run(x, feeds); outside of a graph "
        "and of sg.function, functions return NumPy arrays",
    ),
    **dict.fromkeys(
        ("backward", "retain_grad"), "built by sg.gradients(loss, [w]); sg.grad(f) makes a function of it"
    ),
    "grad": "built by sg.gradients(y, [x]); sg.probe(x, name) names the gradient at x",
    "grad_fn": "x.op; sg.explain says what a gradient passes",
    "register_hook": "sg.probe(x, name) to see the gradient, sg.scale_gradient(x, s) to change it",
    **dict.fromkeys(
        ("requires_grad", "requires_grad_", "is_leaf", "trainable"),
        "asked for by name, in sg.gradients(y, [x]); sg.stop_gradient(x) ends it",
    ),
    "data": "sg.stop_gradient(x)",
    **dict.fromkeys(("cuda", "sharding"), "the engine's concern: sg.Session(graph, engine=...)"),
    "to": "sg.cast(x, dtype); where it is computed is the engine's concern",
    "type_as": "sg.cast(x, y.dtype)",
    "float": "sg.cast(x, sg.float32)",
    "double": "sg.cast(x, sg.float64)",
    "half": "sg.cast(x, sg.float16)",
    "bfloat16": "sg.cast(x, sg.bfloat16)",
    "int": "sg.cast(x, sg.int32)",
    "long": "sg.cast(x, sg.int64)",
    "bool": "sg.cast(x, sg.bool), or x != 0",
    **dict.fromkeys(("get_shape", "set_shape"), "x.shape; sg.placeholder takes the shape"),
    "dim": "x.ndim",
    "numel": "sg.size(x)",
    **dict.fromkeys(("view", "view_as"), "sg.reshape(x, shape)"),
    "unsqueeze": "sg.expand_dims(x, axis)",
    "permute": "sg.transpose(x, perm)",
    **dict.fromkeys(("expand", "expand_as"), "sg.broadcast_to(x, shape)"),
    **dict.fromkeys(("unbind", "unstack"), "sg.unstack(x, axis=axis)"),
    **dict.fromkeys(("split", "chunk"), "sg.split(x, n, axis=axis)"),
    "flip": "sg.reverse(x, axis)",
    "index_select": "sg.gather(x, indices, axis=axis)",
    "masked_fill": "sg.where(mask, value, x)",
    "masked_select": "of a shape that depends on the data; choose with sg.where(condition, x, y)",
    "where": "sg.where(condition, x, y)",
    "clamp": "sg.clip_by_value(x, low, high)",
    "topk": "sg.top_k(x, k)",
    **dict.fromkeys(("matmul", "mm", "bmm", "mv"), "x @ y"),
    **dict.fromkeys(("softmax", "log_softmax", "sigmoid", "relu"), "a function, as in sg.softmax(x)"),
    **dict.fromkeys(
        ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "square", "abs", "pow", "sign", "neg"),
        "a function, as in sg.exp(x)",
    ),
    **dict.fromkeys(("logsumexp",), "sg.reduce_logsumexp(x, axis)"),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), "x == y, x < y and so on"),
    **dict.fromkeys(("isnan", "isinf", "isfinite"), "sg.is_nan(x), sg.is_inf(x) or sg.is_finite(x)"),
    **dict.fromkeys(
        ("add_", "sub_", "mul_", "div_", "copy_", "fill_", "zero_", "clamp_", "exp_", "normal_", "uniform_"),
        "a new tensor: tensors do not change; write x + y, or sg.assign for a parameter",
    ),
    "assign": "sg.assign(w, value), for a parameter",
    "assign_add": "sg.assign(w, w + value), for a parameter",
    "assign_sub": "sg.assign(w, w - value), for a parameter",
    "consumers": "x.op.graph.subgraph_from([x])",
    "initializer": "no operation: parameters have their first values when sg.Session is made",
    "run": "sg.Session(graph).run(x, feeds)",
}
"""What to use instead of attributes that outputs do not have."""


def _by_their_name() -> dict[str, str]:
    found = {name: f"sg.{ours}" for ours, theirs in _OURS.items() for name in theirs.split()}
    return found | _ADVICE


HINTS = _by_their_name()
"""What to write instead of a name that does not exist."""


def advice(text: str, name: str) -> str | None:
    """A message with what to write instead of a name of another library; None if the name is not known."""
    found = HINTS.get(name)
    if found is None:
        return None
    return f"{text}; it is {found}" if found.startswith("sg.") else f"{text}: {found}"


def hint_for(name: str, names: Collection[str]) -> str:
    """The message for a name that this package does not have.

    Args:
        name: the name that was asked for.
        names: the names that exist.

    Examples:
        >>> hint_for("sum", ["reduce_sum"])
        "stopgrad has no 'sum'; it is sg.reduce_sum"
        >>> hint_for("redcue_sum", ["reduce_sum"])
        "stopgrad has no 'redcue_sum'; did you mean sg.reduce_sum?"
    """
    text = f"stopgrad has no {name!r}"
    known = advice(text, name)
    if known is not None:
        return known
    close = difflib.get_close_matches(name, list(names), 3, 0.75)
    if close:
        return f"{text}; did you mean {' or '.join(f'sg.{one}' for one in close)}?"
    close = difflib.get_close_matches(name, HINTS, 1, 0.75)
    if close and HINTS[close[0]].startswith("sg."):
        return f"{text}; did you mean {close[0]}? It is {HINTS[close[0]]}"
    return f"{text}; dir(sg) lists what it has, and 'stopgrad ops' what each operation does"


def hint_for_output(name: str) -> str | None:
    """The message for an attribute that outputs do not have; None if there is no hint.

    Examples:
        >>> hint_for_output("detach")
        "an output has no 'detach'; it is sg.stop_gradient(x)"
    """
    found = OF_OUTPUTS.get(name)
    return None if found is None else f"an output has no {name!r}; it is {found}"
