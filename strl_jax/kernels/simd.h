// Meaning of a kernel's text for a CPU: one environment a lane of a vector of W lanes. W is defined before.
typedef float F __attribute__((vector_size(4 * W)));
typedef int I __attribute__((vector_size(4 * W)));
typedef unsigned U __attribute__((vector_size(4 * W)));
typedef I B;  // a lane is 0 or -1
#define NAN_ __builtin_nanf("")
#define INF_ __builtin_inff()
#define FN static inline __attribute__((always_inline))
FN F F_(float x) { return x - (F){}; }
FN I I_(int x) { return x - (I){}; }
FN U U_(unsigned x) { return x - (U){}; }
#define TRUE_ (~(B){})
#define FALSE_ ((B){})
#define SEL(which, yes, no) ((which) ? (yes) : (no))
#define UNIFORM(x) (x)[0]
FN bool any(B mask) { int r = 0; for (int i = 0; i < W; ++i) r |= mask[i]; return r != 0; }
// Lanes whose loop has ended keep their values until all have.
#define MASK(mask, outer) B mask = outer;
#define LEAVE(mask, condition) mask = mask & (condition); if (!any(mask)) break;
#define KEEP(mask, old, value) old = SEL(mask, value, old);
#define LANES(T, expression) { T r; for (int i = 0; i < W; ++i) r[i] = expression; return r; }
template <typename T, typename P> FN T read_lanes(const P* p, int size, int place, int t, int n) {
  LANES(T, p[(t + i < n ? t + i : n - 1) * size + place])
}
#define IN_F(p, size, place) read_lanes<F>(p, size, place, t, n)
#define IN_I(p, size, place) read_lanes<I>(p, size, place, t, n)
#define IN_U(p, size, place) read_lanes<U>(p, size, place, t, n)
#define IN_B(p, size, place) (read_lanes<I>(p, size, place, t, n) != 0)
template <typename T, typename P> FN void write_lanes(P* p, int size, int place, int t, int n, T x) {
  for (int i = 0; i < W; ++i) if (t + i < n) p[(t + i) * size + place] = x[i];
}
#define OUT_F(p, size, place, x) write_lanes<F>(p, size, place, t, n, x)
#define OUT_I(p, size, place, x) write_lanes<I>(p, size, place, t, n, x)
#define OUT_U(p, size, place, x) write_lanes<U>(p, size, place, t, n, x)
#define OUT_B(p, size, place, x) write_lanes<I>(p, size, place, t, n, (x) & 1)

FN F load(const float* table, I index) LANES(F, table[index[i]])
FN I load(const int* table, I index) LANES(I, table[index[i]])
FN U load(const unsigned* table, I index) LANES(U, table[index[i]])
FN B load(const bool* table, I index) LANES(B, table[index[i]] ? -1 : 0)
// NaN propagates, as in XLA.
FN F max_f(F a, F b) { return SEL((a >= b) | (a != a), a, b); }
FN F min_f(F a, F b) { return SEL((a <= b) | (a != a), a, b); }
FN I max_i(I a, I b) { return SEL(a > b, a, b); }
FN I min_i(I a, I b) { return SEL(a < b, a, b); }
FN U max_u(U a, U b) { return SEL(a > b, a, b); }
FN U min_u(U a, U b) { return SEL(a < b, a, b); }
FN F div_f(F a, F b) { return a / b; }
FN I div_i(I a, I b) LANES(I, b[i] == 0 ? -1 : b[i] == -1 ? (int)(0u - (unsigned)a[i]) : a[i] / b[i])
FN U div_u(U a, U b) LANES(U, b[i] == 0 ? 0xffffffffu : a[i] / b[i])
FN F rem_f(F a, F b) LANES(F, __builtin_fmodf(a[i], b[i]))
FN I rem_i(I a, I b) LANES(I, b[i] == 0 ? a[i] : b[i] == -1 ? 0 : a[i] % b[i])
FN U rem_u(U a, U b) LANES(U, b[i] == 0 ? a[i] : a[i] % b[i])
FN F pow_f(F a, F b) LANES(F, __builtin_powf(a[i], b[i]))
FN F atan2_f(F a, F b) LANES(F, __builtin_atan2f(a[i], b[i]))
FN B not_b(B x) { return ~x; }
FN I not_i(I x) { return ~x; }
FN U not_u(U x) { return ~x; }
FN U shl_u(U a, U b) { return SEL(b < U_(32), a << (b & U_(31)), U_(0)); }
FN I shl_i(I a, I b) { return (I)shl_u((U)a, (U)b); }
FN U shr_u(U a, U b) { return SEL(b < U_(32), a >> (b & U_(31)), U_(0)); }
FN I shr_i(I a, I b) { return (I)shr_u((U)a, (U)b); }
FN I sar_i(I a, I b) { return a >> (I)SEL((U)b < U_(32), (U)b, U_(31)); }
FN U sar_u(U a, U b) { return (U)sar_i((I)a, (I)b); }
FN F abs_f(F x) { return (F)((I)x & I_(0x7fffffff)); }
FN I abs_i(I x) { return SEL(x < I_(0), -x, x); }
FN U abs_u(U x) { return x; }
FN F sign_f(F x) { return SEL(x > F_(0), F_(1), SEL(x < F_(0), F_(-1), x)); }
FN I sign_i(I x) { return (x < I_(0)) - (x > I_(0)); }
FN U sign_u(U x) { return SEL(x > U_(0), U_(1), U_(0)); }
FN B isfinite_f(F x) { return abs_f(x) < F_(INF_); }
FN F sqrt_f(F x) LANES(F, __builtin_sqrtf(x[i]))
FN F rsqrt_f(F x) { return F_(1) / sqrt_f(x); }
#define UNARY(name) FN F name##_f(F x) LANES(F, __builtin_##name##f(x[i]))
UNARY(cbrt) UNARY(sin) UNARY(cos) UNARY(tan) UNARY(asin) UNARY(acos) UNARY(atan)
UNARY(sinh) UNARY(cosh) UNARY(tanh) UNARY(asinh) UNARY(acosh) UNARY(atanh) UNARY(exp) UNARY(exp2) UNARY(expm1)
UNARY(log) UNARY(log1p) UNARY(erf) UNARY(floor) UNARY(ceil) UNARY(round) UNARY(rint)
FN F convert_if(I x) { return __builtin_convertvector(x, F); }
FN F convert_uf(U x) { return __builtin_convertvector(x, F); }
FN U convert_iu(I x) { return (U)x; }
FN I convert_ui(U x) { return (I)x; }
FN F convert_bf(B x) { return SEL(x, F_(1), F_(0)); }
FN I convert_bi(B x) { return x & I_(1); }
FN U convert_bu(B x) { return (U)(x & I_(1)); }
// Saturating; NaN becomes 0.
FN I convert_fi(F x) {
  I r = __builtin_convertvector(SEL(abs_f(x) < F_(2147483648.0f), x, F_(0)), I);
  return SEL(x >= F_(2147483648.0f), I_(2147483647), SEL(x < F_(-2147483648.0f), I_(-2147483647 - 1), r));
}
FN U convert_fu(F x) LANES(U, x[i] >= 4294967296.0f ? 0xffffffffu : x[i] > 0.0f ? (unsigned)x[i] : 0u)
FN U bits_fu(F x) { return (U)x; }
FN F bits_uf(U x) { return (F)x; }
