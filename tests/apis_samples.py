"""Arguments with which tests execute the rows of `h2dlint.apis`: data for test_apis_torch.py and tests/gpu.

The text of a sample is what stands between the parentheses of the call; a method's receiver comes first. The names in
it are the tensors of `make_tensors`. A name may stand in several samples. Short names serve all owners; an in-place
operation (`add_`) takes the samples of the operation it is made of (`add`) where it has none.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

SAMPLES: dict[str, str] = {
    # One tensor.
    "x": """
        abs absolute acos airy_ai aminmax angle arccos arcsin arctan arctanh argwhere asin atan atanh bernoulli
        bessel_j0 bessel_j1 bessel_y0 bessel_y1 ceil celu clone cond conj corrcoef cos cosh cov cumulative_trapezoid
        deg2rad dequantize detach diag diag_embed diagflat diff digamma elu entr erf erfc erfcx erfinv exp exp2
        expit expm1 fft fft2 fftn fftshift fix fliplr flipud frac frexp gammaln gelu geqrf glu gradient
        gumbel_softmax hardshrink hardsigmoid hardswish hardtanh hash_tensor hfft hfft2 hfftn histc histogram i0 i0e
        i1 i1e ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft irfft2 irfftn isfinite isinf isnan isneginf
        isposinf isreal leaky_relu lgamma log log10 log1p log2 log_ndtr logical_not logit logsigmoid lu
        lu_factor lu_factor_ex matrix_norm matrix_rank mish mode modified_bessel_i0 modified_bessel_i1
        modified_bessel_k0 modified_bessel_k1 msort nan_to_num ndtr ndtri neg negative new nonzero norm
        norm_except_dim normalize nuclear_norm pca_lowrank pdist pinv pinverse poisson positive psi qr rad2deg
        reciprocal relu relu6 requires_grad_ rfft rfft2 rfftn rot90 round rrelu rsqrt scaled_modified_bessel_k0
        scaled_modified_bessel_k1 selu sgn sigmoid sign signbit silu sin sinc sinh slice_copy softmin softplus
        softshrink softsign sort argsort spherical_bessel_j0 sqrt square squeeze_copy svd svd_lowrank svdvals t_copy
        tan tanh tanhshrink trace trapezoid trapz tril triu trunc unique unique_consecutive vector_norm
        alias_copy detach_copy diagonal_copy unbind_copy std_mean var_mean cauchy_ exponential_
        log_normal_ normal_ random_ zero_ zeros_ ones_ eye_ kaiming_normal_ kaiming_uniform_ orthogonal_
        trunc_normal_ xavier_normal_ xavier_uniform_ detach_ t_ share_memory_ as_tensor asarray from_dlpack
        Parameter Buffer numpy __array__ __neg__ __abs__ __pos__ __reversed__ __iter__ data T H mT mH
        adjoint t real zeros_like ones_like empty_like rand_like randn_like conj_physical_ atleast_1d squeeze unbind
        sum mean prod any all max min amax amin argmax argmin median nanmedian nansum nanmean std var count_nonzero
    """,
    "x + 1.5": "acosh arccosh",
    "x[:, :3] * 0": "cosh arcsinh asinh",
    "x, 0.5": "dropout1d dropout2d dropout3d ",
    "x, 0.5, True": """
        dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout native_dropout
        dropout_ alpha_dropout_ feature_alpha_dropout_ feature_dropout_
    """,
    "x, 0.5, False": "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout",
    "x.int()": "float double half bfloat16 long short char byte bool cfloat cdouble chalf dequantize bernoulli_",
    "k": "bitwise_not one_hot __invert__",
    "v.long()": "bincount",
    "m": """
        cholesky cholesky_ex cholesky_inverse det eig eigh eigvals eigvalsh inv inv_ex inverse ldl_factor
        ldl_factor_ex lobpcg logdet matrix_exp slogdet pinv
    """,
    "v": "combinations vander",
    "b": "instance_norm",
    "c": "conj_physical resolve_conj resolve_neg imag real view_as_real view_as_real_copy",
    "c.conj()": "resolve_conj",
    "c.conj().imag": "resolve_neg",
    "p": "flatten ravel contiguous to_dense",
    "p, (12,)": "reshape",
    "p, b.view(12, 2)[:, 0]": "reshape_as",
    # Reductions and what takes a dimension.
    "x, 1": """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool1d_with_indices avg_pool1d
        chunk cummax cummin cumprod cumsum fill fill_ fill_diagonal_ frobenius_norm full_like group_norm hsplit
        kthvalue log_softmax logcumsumexp logsumexp max_pool1d max_pool1d_with_indices multigammaln multinomial
        mvlgamma nanquantile new_empty new_ones new_zeros quantile randint_like repeat_interleave roll softmax split
        split_copy tensor_split topk unsafe_chunk unsafe_split unsqueeze unsqueeze_copy unsqueeze_ squeeze_ vsplit
        sum mean prod any all max min amax amin argmax argmin median nanmedian nansum nanmean std var count_nonzero
        std_mean var_mean mode sort argsort diff
    """,
    "x, 2, 1": "norm ",
    "x, 2 ": "torch.Tensor.polygamma torch.Tensor.polygamma_",
    "x, 1, True": "sum mean amax amin argmax all any nansum",
    "x, (0, 1)": "flip sum mean amax amin",
    "x, [2, 2, 2, 2]": "histogramdd",
    # Two tensors.
    "x, y": """
        add arctan2 atan2 binary_cross_entropy binary_cross_entropy_with_logits binomial cdist
        chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w clamp clamp_max
        clamp_min clip complex copysign cosine_similarity cross_entropy dist div divide eq expand_as float_power
        floor_divide fmax fmin fmod gammainc gammaincc ge greater greater_equal gt heaviside hermite_polynomial_h
        hermite_polynomial_he hinge_embedding_loss huber_loss hypot igamma igammac inner isclose isin kl_div kron
        l1_loss laguerre_polynomial_l ldexp le legendre_polynomial_p less less_equal linear logaddexp logaddexp2
        logical_and logical_or logical_xor lstsq lt maximum minimum mse_loss mul multilabel_soft_margin_loss
        multiply ne nextafter normal not_equal pairwise_distance polar pow remainder reshape_as
        rsub shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
        shifted_chebyshev_polynomial_w slice_scatter smooth_l1_loss soft_margin_loss sub subtract
        tensordot true_divide type_as vecdot view_as xlog1py xlogy zeta __add__ __radd__ __sub__ __rsub__ __mul__
        __rmul__ __mod__ __rmod__ __pow__ __floordiv__ __rfloordiv__ __truediv__ __rtruediv__ __div__ __rdiv__
        __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __iadd__ __isub__ __imul__ __itruediv__ __idiv__ __ifloordiv__
        __imod__ block_diag broadcast_tensors copy_
    """,
    "x, b": "add sub mul div eq maximum __add__ __mul__ lt logical_and atan2",
    "x, 2": """
        add sub mul div floor_divide remainder pow eq lt clamp_min __add__ __mul__ __pow__ __rpow__ __ipow__
        __truediv__
    """,
    "k, k": """
        bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor gcd lcm __and__ __rand__ __or__
        __ror__ __xor__ __rxor__ __lshift__ __rlshift__ __rshift__ __rrshift__ __iand__ __ior__ __ixor__ __ilshift__
        __irshift__ add sub mul eq
    """,
    "v, x": "searchsorted",
    "x, v": "mv prelu bucketize",
    "m, m": "cholesky_solve cross dsmm matmul mm solve solve_ex spmm triangular_solve __matmul__ __rmatmul__",
    "v, v": "dot ger outer vdot cartesian_prod meshgrid",
    "b, b.transpose(1, 2)": "bmm matmul",
    "x, k": "take take_along_dim multilabel_margin_loss",
    "k, x[[0, 1, 2]]": "embedding",
    "x, mask": "masked_select",
    "x, mask, 1.0": "masked_fill",
    "x, mask, y": "masked_scatter torch.Tensor.where",
    "mask, x, y": "torch.where",
    # More.
    "x, y, y": """
        addcdiv addcmul gaussian_nll_loss lerp margin_ranking_loss scaled_dot_product_attention triplet_margin_loss
        triplet_margin_with_distance_loss
    """,
    "x, y, torch.ones(3)": "cosine_embedding_loss",
    "m, m, m": "addmm chain_matmul",
    "v[:3], m, v[:3]": "addmv",
    "m, v[:3], v[:3]": "addr",
    "m, torch.ones(2, 3, 3), torch.ones(2, 3, 3)": "addbmm",
    "torch.ones(2, 3, 3), torch.ones(2, 3, 3), torch.ones(2, 3, 3)": "baddbmm",
    "x, 0, i": "index_select torch.Tensor.index",
    "x, 0, i, y[:2]": "index_add index_copy",
    "x, 0, i, 1.0": "index_fill",
    "x, 0, i, y[:2], 'prod'": "index_reduce",
    "x, (i,), y[:2]": "index_put",
    "x, i, v[:2]": "put",
    "x, 0, k": "gather",
    "x, 0, k, y": "scatter scatter_add",
    "x, 0, k, y, 'sum'": "scatter_reduce",
    "x, i, 1.0": "__setitem__",
    "x, slice(0, 2)": "__getitem__",
    "x, v, 0, 1": "select_scatter",
    "x, v[:3], 0, 0, 1": "diagonal_scatter",
    "x, torch.zeros(2, 2), (2, 2), (4, 1)": "as_strided_scatter",
    "x, 2, 2": "torch.Tensor.repeat torch.Tensor.tile",
    "x, (2, 2)": "torch.tile",
    "x, (1, 1)": "pad constant_pad_nd",
    "x, 0, 1": "moveaxis movedim select select_copy swapaxes swapdims threshold transpose transpose_copy",
    "x, 0, 1, 1": "narrow_copy unfold_copy",
    "x, (1, 0)": "permute permute_copy",
    "x, (12,)": "view_copy reshape",
    "x, (3, 1)": "sum_to_size",
    "x, (3, 4)": "sum_to_size",
    "x, 2, 0, 2": "renorm",
    "x, size=5": "nonzero_static",
    "x, [1, 2]": "split_with_sizes split_with_sizes_copy unsafe_split_with_sizes",
    "x, (2, 2), (4, 1)": "as_strided_copy as_strided_ as_strided",
    "x[:1], (3, 4)": "expand_copy",
    "torch.ones(3, 2)": "view_as_complex view_as_complex_copy",
    "k, (4, 4)": "unravel_index",
    "v, 'mean', lengths=torch.tensor([2, 2])": "segment_reduce",
    "1, x": "torch.polygamma torch.special.polygamma",
    "x, 1.": "torch.Tensor.",
    # Lists of tensors.
    "[x, y], 0": "cat concat concatenate stack",
    "[x, y]": """
        cat concat concatenate stack hstack vstack row_stack dstack column_stack pad_sequence parameters_to_vector
    """,
    "[x, y, v]": "parameters_to_vector",
    "[v, v[:2]]": "pad_sequence",
    "[m, m, m]": "multi_dot",
    "'ij,kj->ik', x, y": "einsum",
    "'ij->ji', x": "einsum",
    # Networks.
    "b, b": "conv1d",
    "b, torch.ones(3, 2, 3)": "conv_transpose1d",
    "n, n": "conv2d",
    "n, torch.ones(3, 2, 3, 3)": "conv_transpose2d",
    "n[None], torch.ones(2, 2, 1, 1, 1)": "conv3d conv_transpose3d",
    "b, torch.ones(3, 4, 2), torch.ones(2)": "conv_tbc",
    "b, b, None, [1], [0], [1], False, [0], 1": "convolution",
    "n, 2": """
        adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool2d_with_indices adaptive_max_pool3d
        adaptive_max_pool3d_with_indices avg_pool2d avg_pool3d interpolate local_response_norm max_pool2d
        max_pool2d_with_indices max_pool3d max_pool3d_with_indices unfold upsample upsample_bilinear
        upsample_nearest
    """,
    "b, 2., 2": "lp_pool1d",
    "n, 2., 2": "lp_pool2d lp_pool3d",
    "n, 2, output_size=1": "fractional_max_pool2d fractional_max_pool2d_with_indices",
    "n, 2, output_size=1 ": "fractional_max_pool3d fractional_max_pool3d_with_indices",
    "b, (b * 0).long(), 2": "max_unpool1d",
    "n, (n * 0).long(), 2": "max_unpool2d",
    "n, (n * 0).long(), 2 ": "max_unpool3d",
    "torch.ones(1, 4, 4), (3, 3), (2, 2)": "fold",
    "n, torch.zeros(2, 2, 2, 2)": "grid_sample",
    "n, torch.zeros(2, 2, 2, 2), 0, 0, False": "grid_sampler grid_sampler_2d",
    "n[None], torch.zeros(1, 2, 2, 2, 3), 0, 0, False": "grid_sampler_3d",
    "torch.ones(1, 2, 3), (1, 1, 2, 2)": "affine_grid",
    "torch.ones(1, 2, 3), (1, 1, 2, 2), False": "affine_grid_generator",
    "torch.ones(1, 4, 2, 2), 2": "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle",
    "b, torch.zeros(3), torch.ones(3)": "torch.nn.functional.batch_norm",
    "b, None, None, torch.zeros(3), torch.ones(3), False, 0.1, 1e-5, False": "torch.batch_norm",
    "b, None, None, None, None, True, 0.1, 1e-5, False": "torch.instance_norm",
    "b, None, None, None, None, True, 0.1, 1e-5": "native_batch_norm",
    "b, (4,)": "layer_norm rms_norm",
    "b, (4,), None, None, 1e-5": "native_layer_norm",
    "b, None, None, 2, 3, 4, 1, 1e-5": "native_group_norm",
    "x, y, torch.ones(1, 4, 4)": "bilinear",
    "k, x[[0, 1, 2]] ": "torch.nn.functional.embedding_bag",
    "x, k ": "torch.embedding",
    "x, torch.zeros(3).long(), torch.tensor([0])": "torch.embedding_bag",
    "x, torch.tensor([0, 1, 2])": "nll_loss multi_margin_loss",
    "x, torch.ones(5, 4), torch.tensor([0, 1, 2])": "linear_cross_entropy",
    "torch.zeros(4, 1, 3), torch.ones(1, 2).long(), torch.tensor([4]), torch.tensor([2])": "ctc_loss",
    "b, b, b, 4, 2, torch.ones(12, 4), torch.ones(12), None, None, False, 0.0, torch.ones(4, 4), torch.ones(4)": (
        "multi_head_attention_forward"
    ),
    "b, torch.tensor([2, 1, 1])": "pack_padded_sequence",
    "[x, y] ": "pack_sequence",
    "torch.nn.utils.rnn.pack_sequence([x, y])": "pad_packed_sequence unpack_sequence",
    "b, torch.tensor([2, 1, 1]) ": "unpad_sequence",
    "torch.ones(32), 8, window=torch.ones(8), return_complex=True": "stft",
    "torch.stft(torch.ones(32), 8, window=torch.ones(8), return_complex=True), 8, window=torch.ones(8)": "istft",
    "x, y, True, False, 1e-8, 1": "torch.poisson_nll_loss",
    "x, y ": "torch.nn.functional.poisson_nll_loss",
    "x ": """
        floor torch.nn.functional.softmax torch.nn.functional.log_softmax torch.Tensor.uniform_ torch.nn.init.uniform_
    """,
    "x.double(), 2": "float_power_",
    "x, {}": "__deepcopy__",
    "x, 0.5 ": "geometric_ sparse_ constant_",
    "b ": "dirac_",
    "x, abs": "apply_",
    "x, y, max": "map_",
    "x, y, y, max": "map2_",
    "x, i, 1.0, 2.0": "embedding_renorm_",
    # Linear algebra.
    "m, m, upper=True": "solve_triangular",
    "m, v[:3]": "orgqr householder_product",
    "m, v[:3], m": "ormqr",
    "m, *torch.linalg.lu_factor(m)": "torch.lu_solve torch.Tensor.lu_solve",
    "*torch.linalg.lu_factor(m), m": "torch.linalg.lu_solve",
    "*torch.linalg.ldl_factor(m), m": "ldl_solve",
    "*torch.linalg.lu_factor(m)": "lu_unpack",
    "m, 2": "matrix_power",
    "torch.eye(4).view(2, 2, 2, 2)": "tensorinv",
    "torch.eye(4).view(2, 2, 2, 2), torch.ones(2, 2)": "tensorsolve",
}


def make_tensors() -> dict[str, Any]:
    """Fresh tensors by the names that samples use; all contiguous but p."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(3, 4, generator=generator) * 0.5 + 0.25
    return {
        "torch": torch,
        "x": x,
        "y": x.clone(),
        "v": torch.ones(4),
        "m": torch.eye(3) * 4 + 0.5,
        "b": torch.ones(2, 3, 4),
        "n": torch.ones(2, 3, 4, 5),
        "c": torch.ones(3, 4, dtype=torch.complex64),
        "i": torch.tensor([0, 1]),
        "k": torch.tensor([[0, 1, 2, 0]] * 3),
        "mask": torch.ones(3, 4, dtype=torch.bool),
        "p": torch.ones(4, 3).t(),
    }


LIKE_SAMPLES = {
    "torch.Tensor.new_zeros": ["x, 2, 3", "x, (2, 3)"],
    "torch.Tensor.new_ones": ["x, 2, 3", "x, (2, 3)"],
    "torch.Tensor.new_empty": ["x, 2, 3", "x, (2, 3)"],
    "torch.Tensor.new_full": ["x, (2, 3), 1.0"],
    "torch.Tensor.new_tensor": ["x, [1, 2]", "x, y"],
    "torch.Tensor.new_empty_strided": ["x, (2, 3), (3, 1)"],
    "torch.Tensor.new": ["x, 2, 3", "x, [1.0, 2.0]"],
}

NEW_SAMPLES = {
    "torch.zeros torch.ones torch.empty torch.rand torch.randn": ["2, 3", "(2, 3)", "()"],
    "torch.full": ["(2, 3), 1.0", "(), 1.0"],
    "torch.randint": ["0, 9, (2, 3)"],
    "torch.empty_strided": ["(2, 3), (3, 1)"],
    "torch.empty_permuted": ["(2, 3), (1, 0)"],
    "torch.tensor": ["[[1, 2, 3], [4, 5, 6]]"],
    "torch.scalar_tensor": ["1.0"],
    "torch.arange torch.range": ["1, 5, 2"],
    "torch.linspace torch.logspace": ["0, 1, 5"],
    "torch.randperm": ["5"],
    "torch.eye": ["2, 3", "3"],
    "torch.tril_indices torch.triu_indices": ["3, 4, 0"],
    "torch.fft.fftfreq torch.fft.rfftfreq": ["8, 1.0"],
    "torch.get_rng_state": [""],
    """
    torch.bartlett_window torch.blackman_window torch.hamming_window torch.hann_window torch.kaiser_window
    """: ["8, True"],
    """
    torch.Tensor torch.FloatTensor torch.DoubleTensor torch.HalfTensor torch.BFloat16Tensor torch.LongTensor
    torch.IntTensor torch.ShortTensor torch.CharTensor torch.ByteTensor torch.BoolTensor
    """: ["2, 3", "[[1, 2, 3], [4, 5, 6]]"],
}
NEW_BY_NAME = {name: samples for names, samples in NEW_SAMPLES.items() for name in names.split()}

# What each view makes of b, whose size is (2, 3, 4) and whose strides are (12, 4, 1): (arguments, size, strides).
VIEWS: dict[str, list[tuple[str, tuple[int, ...], tuple[int, ...]]]] = {
    "index": [("b, (0, slice(None), slice(0, 2))", (3, 2), (4, 1)), ("b, slice(0, 1)", (1, 3, 4), (12, 4, 1))],
    "unbind": [("b", (3, 4), (4, 1))],
    "same": [("b", (2, 3, 4), (12, 4, 1))],
    "t": [("b[0]", (4, 3), (1, 4))],
    "T": [("b[0]", (4, 3), (1, 4))],
    "mT": [("b", (2, 4, 3), (12, 1, 4))],
    "transpose": [("b, 0, 2", (4, 3, 2), (1, 4, 12))],
    "permute": [("b, (2, 0, 1)", (4, 2, 3), (1, 12, 4))],
    "movedim": [("b, 0, 2", (3, 4, 2), (4, 1, 12))],
    "expand": [("b[:1], (5, 3, 4)", (5, 3, 4), (0, 4, 1))],
    "expand_as": [("b[:, :1], b", (2, 3, 4), (12, 0, 1))],
    "broadcast_to": [("b, (5, 2, 3, 4)", (5, 2, 3, 4), (0, 12, 4, 1))],
    "broadcast_tensors": [("b[:1], torch.ones(5, 1, 1)", (5, 3, 4), (0, 4, 1))],
    "meshgrid": [("b[0, 0], torch.ones(5)", (4, 5), (1, 0))],
    "narrow": [("b, 2, 1, 2", (2, 3, 2), (12, 4, 1))],
    "select": [("b, 1, 0", (2, 4), (12, 1))],
    "squeeze": [("b[:1], 0", (3, 4), (4, 1)), ("b[:, :1]", (2, 4), (12, 1))],
    "unsqueeze": [("b, 0", (1, 2, 3, 4), (24, 12, 4, 1))],
    "atleast": [("b", (2, 3, 4), (12, 4, 1))],
    "view": [("b, (6, 4)", (6, 4), (4, 1)), ("b, -1", (24,), (1,))],
    "view_as": [("b, torch.ones(6, 4)", (6, 4), (4, 1))],
    "unflatten": [("b, 2, (2, 2)", (2, 3, 2, 2), (12, 4, 2, 1))],
    "diagonal": [("b, 0, 1, 2", (2, 3), (12, 5))],
    "as_strided": [("b, (2, 2), (12, 1)", (2, 2), (12, 1))],
    "unfold": [("b, 2, 2, 1", (2, 3, 3, 2), (12, 4, 1, 1))],
    "chunk": [("b, 2, 2", (2, 3, 2), (12, 4, 1))],
    "split": [("b, [1, 2], 1", (2, 1, 4), (12, 4, 1))],
    "tensor_split": [("b, 2, 2", (2, 3, 2), (12, 4, 1))],
    "hsplit": [("b, 3", (2, 1, 4), (12, 4, 1))],
    "vsplit": [("b, 2", (1, 3, 4), (12, 4, 1))],
    "dsplit": [("b, 2", (2, 3, 2), (12, 4, 1))],
    "reshape": [("b, (6, 4)", (6, 4), (4, 1))],
    "reshape_as": [("b, torch.ones(6, 4)", (6, 4), (4, 1))],
    "flatten": [("b, 1, 2", (2, 12), (12, 1)), ("b", (24,), (1,))],
    "ravel": [("b", (24,), (1,))],
    "contiguous": [("b", (2, 3, 4), (12, 4, 1))],
}
# Views whose row differs in parameters or names none: by name.
VIEWS_BY_NAME = {
    "torch.unsafe_split": [("b, 2, 2", (2, 3, 2), (12, 4, 1))],
    "torch.Tensor.unsafe_split": [("b, 2, 2", (2, 3, 2), (12, 4, 1))],
    "torch.linalg.diagonal": [("b", (2, 3), (12, 5))],
    "torch.Tensor.as_subclass": [("b, torch.nn.Parameter", (2, 3, 4), (12, 4, 1))],
    "torch.slice_inverse": [("b, b", (2, 3, 4), (12, 4, 1))],
    "torch.Tensor.slice_inverse": [("b, b", (2, 3, 4), (12, 4, 1))],
    "torch.imag": [("c", (3, 4), (8, 2))],
    "torch.Tensor.imag": [("c", (3, 4), (8, 2))],
    "torch.real": [("c", (3, 4), (8, 2)), ("x", (3, 4), (4, 1))],
    "torch.Tensor.real": [("c", (3, 4), (8, 2)), ("x", (3, 4), (4, 1))],
    "torch.view_as_real": [("c", (3, 4, 2), (8, 2, 1))],
    "torch.view_as_complex": [("torch.ones(3, 4, 2)", (3, 4), (4, 1))],
    "torch.Tensor.sum_to_size": [("b, (2, 3, 4)", (2, 3, 4), (12, 4, 1))],
    "torch.einsum": [("'ijk->kji', b", (4, 3, 2), (1, 4, 12))],
}

BY_NAME: dict[str, list[str]] = {}
for text, names in SAMPLES.items():
    for one in names.split():
        BY_NAME.setdefault(one, []).append(text.strip())


def find_object(name: str) -> Callable[..., Any]:
    """The callable behind a dotted name; of a property its getter."""
    root, *parts = name.split(".")
    value: Any = {"torch": torch, "copy": copy}[root]
    for part in parts:
        value = getattr(value, part)
    if callable(value):
        return value  # type: ignore[no-any-return]
    return value.__get__  # type: ignore[no-any-return]


def find_samples(name: str) -> list[str]:
    """The samples that execute a row; none means that data is missing here."""
    if name in LIKE_SAMPLES:
        return LIKE_SAMPLES[name]
    short = name.rpartition(".")[2]
    if name.startswith("copy."):
        return ["x"]
    for key in (name, short, short.rstrip("_"), name.rstrip("_").replace("torch.", "torch.Tensor.")):
        if key in BY_NAME:
            return BY_NAME[key]
    return []


def run_sample(function: Callable[..., Any], text: str, tensors: dict[str, Any]) -> tuple[Any, list[Any]]:
    """(result, arguments) of one call."""
    args, keywords = read_sample(text, tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **keywords), [*args, *keywords.values()]


def read_sample(text: str, tensors: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(positional arguments, keyword arguments) that a sample's text means."""
    return eval(f"collect({text})", {**tensors, "collect": lambda *args, **keywords: (args, keywords)})  # type: ignore[no-any-return]


def collect_tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a result, depth first."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from collect_tensors(one)


def address(value: torch.Tensor) -> int:
    """Where the storage begins."""
    return value.untyped_storage().data_ptr()


def shares(result: torch.Tensor, arguments: list[Any]) -> bool:
    """Whether the result lies in the storage of one of the arguments."""
    return any(result.numel() and address(result) == address(one) for one in collect_tensors(arguments))
