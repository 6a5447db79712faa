// Meaning of a kernel's text for CUDA: one environment a thread.
typedef float F;
typedef int I;
typedef unsigned U;
typedef bool B;
#define NAN_ __int_as_float(0x7fffffff)
#define INF_ __int_as_float(0x7f800000)
#define F_(x) (x)
#define I_(x) (x)
#define U_(x) (x)
#define TRUE_ true
#define FALSE_ false
#define SEL(which, yes, no) ((which) ? (yes) : (no))
#define UNIFORM(x) (x)
#define MASK(mask, outer)
#define LEAVE(mask, condition) if (!(condition)) break;
#define KEEP(mask, old, value) old = value;
#define IN_F(p, size, place) p[t * size + place]
#define IN_I IN_F
#define IN_U IN_F
#define IN_B IN_F
#define OUT_F(p, size, place, x) p[t * size + place] = x
#define OUT_I OUT_F
#define OUT_U OUT_F
#define OUT_B OUT_F
#define FN static __device__ __forceinline__

template <typename T> FN T load(const T* table, int index) { return __ldg(table + index); }
FN bool load(const bool* table, int index) { return table[index]; }
// Instructions that propagate NaN, as XLA does.
FN F max_f(F a, F b) { F r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
FN F min_f(F a, F b) { F r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
FN I max_i(I a, I b) { return a > b ? a : b; }
FN I min_i(I a, I b) { return a < b ? a : b; }
FN U max_u(U a, U b) { return a > b ? a : b; }
FN U min_u(U a, U b) { return a < b ? a : b; }
FN F div_f(F a, F b) { return a / b; }
FN I div_i(I a, I b) { return b == 0 ? -1 : b == -1 ? (I)(0u - (U)a) : a / b; }
FN U div_u(U a, U b) { return b == 0 ? 0xffffffffu : a / b; }
FN F rem_f(F a, F b) { return fmodf(a, b); }
FN I rem_i(I a, I b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
FN U rem_u(U a, U b) { return b == 0 ? a : a % b; }
FN F pow_f(F a, F b) { return powf(a, b); }
FN F atan2_f(F a, F b) { return atan2f(a, b); }
FN B not_b(B x) { return !x; }
FN I not_i(I x) { return ~x; }
FN U not_u(U x) { return ~x; }
FN I shl_i(I a, I b) { return (U)b < 32u ? (I)((U)a << b) : 0; }
FN U shl_u(U a, U b) { return b < 32u ? a << b : 0u; }
FN I shr_i(I a, I b) { return (U)b < 32u ? (I)((U)a >> b) : 0; }
FN U shr_u(U a, U b) { return b < 32u ? a >> b : 0u; }
FN I sar_i(I a, I b) { return a >> ((U)b < 32u ? b : 31); }
FN U sar_u(U a, U b) { return (U)((I)a >> (b < 32u ? b : 31u)); }
FN F abs_f(F x) { return fabsf(x); }
FN I abs_i(I x) { return x < 0 ? (I)(0u - (U)x) : x; }
FN U abs_u(U x) { return x; }
FN F sign_f(F x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
FN I sign_i(I x) { return (x > 0) - (x < 0); }
FN U sign_u(U x) { return x > 0u; }
FN B isfinite_f(F x) { return fabsf(x) < INF_; }
FN F rsqrt_f(F x) { return rsqrtf(x); }
#define UNARY(name) FN F name##_f(F x) { return name##f(x); }
UNARY(sqrt) UNARY(cbrt) UNARY(sin) UNARY(cos) UNARY(tan) UNARY(asin) UNARY(acos) UNARY(atan)
UNARY(sinh) UNARY(cosh) UNARY(tanh) UNARY(asinh) UNARY(acosh) UNARY(atanh) UNARY(exp) UNARY(exp2) UNARY(expm1)
UNARY(log) UNARY(log1p) UNARY(erf) UNARY(floor) UNARY(ceil) UNARY(round) UNARY(rint)
FN F convert_bf(B x) { return x ? 1.0f : 0.0f; }
FN I convert_bi(B x) { return x; }
FN U convert_bu(B x) { return x; }
FN F convert_if(I x) { return (F)x; }
FN U convert_iu(I x) { return (U)x; }
FN F convert_uf(U x) { return (F)x; }
FN I convert_ui(U x) { return (I)x; }
FN I convert_fi(F x) { return x != x ? 0 : __float2int_rz(x); }  // saturates
FN U convert_fu(F x) { return x != x ? 0u : __float2uint_rz(x); }
FN U bits_fu(F x) { return __float_as_uint(x); }
FN F bits_uf(U x) { return __uint_as_float(x); }
