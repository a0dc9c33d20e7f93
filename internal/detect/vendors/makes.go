// Package vendors lists the forms that vendors give their keys and tokens.
package vendors

// Form is one vendor's form of a secret: a prefix, then at least Min characters of the alphabet.
type Form struct {
	Prefix string
	More   string // characters of the rest besides letters and digits
	Min    int
}

// All returns the prefixes that vendors document for their keys and tokens. The sources are the
// vendors' own pages; the lengths are the shortest seen, so that a longer kind is not missed.
func All() []Form {
	all := []Form{
		{"ghp_", "_", 30}, {"gho_", "_", 30}, {"ghu_", "_", 30}, {"ghs_", "_", 30}, {"ghr_", "_", 30}, {"github_pat_", "_", 30},
		{"glpat-", "-_.", 18}, {"gldt-", "-_", 18}, {"glrt-", "-_.", 18}, {"glft-", "-_", 18}, {"glptt-", "-_", 30}, {"glagent-", "-_", 30},
		{"gloas-", "-_", 30}, {"glsoat-", "-_", 18}, {"glimt-", "-_", 18}, {"glffct-", "-_", 18}, {"glcbt-", "-_.", 18}, {"GR1348941", "-_", 20},
		{"AKIA", "", 16}, {"ASIA", "", 16}, {"ABIA", "", 16}, {"ACCA", "", 16}, {"ABSK", "+/=", 60}, {"LTAI", "", 17},
		{"xoxb-", "-", 10}, {"xoxp-", "-", 10}, {"xoxa-", "-", 8}, {"xoxr-", "-", 8}, {"xoxs-", "-", 10}, {"xoxo-", "-", 8}, {"xoxe-", "-", 20}, {"xoxe.", ".-", 20}, {"xapp-", "-", 20},
		{"sk_live_", "", 10}, {"sk_test_", "", 10}, {"rk_live_", "", 10}, {"rk_test_", "", 10}, {"sk_prod_", "", 10}, {"rk_prod_", "", 10}, {"whsec_", "+/=", 20},
		{"sk-", "-_", 20}, {"SG.", "-_.=", 40}, {"hf_", "", 30}, {"api_org_", "", 30}, {"npm_", "", 30}, {"pypi-", "-_", 40}, {"rubygems_", "", 40},
		{"dop_v1_", "", 40}, {"doo_v1_", "", 40}, {"dor_v1_", "", 40}, {"dp.", ".", 36}, {"duffel_", "_-=", 40},
		{"EZAK", "", 50}, {"EZTK", "", 50}, {"FLWPUBK_TEST-", "-", 10}, {"FLWSECK_TEST-", "-", 10}, {"fo1_", "-_", 40}, {"fm1", "-_+/=", 90}, {"fm2_", "-_+/=", 90},
		{"glc_", "+/=", 30}, {"glsa_", "_", 36}, {"NRAK-", "-", 20}, {"NRII-", "-", 20}, {"NRJS-", "-", 15}, {"ntn_", "", 40}, {"secret_", "", 40},
		{"pscale_pw_", "-_=.", 30}, {"pscale_tkn_", "-_=.", 30}, {"pscale_oauth_", "-_=.", 30}, {"PMAK-", "-", 50}, {"rdme_", "", 60}, {"shpat_", "", 30}, {"shpca_", "", 30}, {"shppa_", "", 30}, {"shpss_", "", 30},
		{"sntrys_", "+/=_", 60}, {"sntryu_", "", 60}, {"sm_pat_", "", 16}, {"sm_sat_", "", 16}, {"sm_aat_", "", 16}, {"tfp_", "-_=.", 40}, {"xkeysib-", "-", 60},
		{"dnkey-", "-_=", 40}, {"age1", "", 58}, {"AGE-SECRET-KEY-1", "", 58}, {"p8e-", "", 32}, {"AKCp", "", 60}, {"cmVmd", "", 55}, {"AQVN", "-_", 35}, {"YC", "_-", 38}, {"t1.", "-_.=", 60},
		{"hvs.", "-_", 20}, {"hvb.", "-_", 20}, {"hvr.", "-_", 20}, {"sq0atp-", "-_", 20}, {"sq0csp-", "-_", 20}, {"EAAA", "-_", 50}, {"EAAC", "", 50}, {"EAAM", "", 50}, {"SK", "", 32},
		{"AIza", "-_", 35}, {"ya29.", "-_", 20}, {"gsk_", "", 40}, {"pplx-", "", 40}, {"ops_eyJ", "+/=_-", 40}, {"tskey-", "-_", 20}, {"A3-", "-", 30}, {"lin_api_", "", 30}, {"dapi", "-", 32},
		{"tvly-", "-", 20}, {"r8_", "", 30}, {"nvapi-", "-_", 40}, {"phc_", "", 40}, {"phx_", "", 40}, {"CLOJARS_", "", 50}, {"dckr_pat_", "-_", 20}, {"ATATT3", "-_=", 100}, {"ATCTT3", "-_=", 100}, {"oy2", "", 43},
		{"key-", "", 32}, {"AKC", "", 10}, {"pat-na1-", "-", 30}, {"v1.0-", "-", 100}, {"figd_", "-_", 30}, {"HRKU-", "-", 30}, {"squ_", "", 40}, {"sqp_", "", 40}, {"sqa_", "", 40}, {"eyJrIjoi", "+/=", 40}, {"ZXlK", "+/=_-", 60},
		{"live_", "-_=", 40}, {"test_", "", 35}, {"BSKY-", "-", 10}, {"jfrt@", "", 10}, {"xai-", "", 60}, {"AAAA", "+/=-_%", 100}, {"SCW", "", 17}, {"EAACEdEose0cBA", "", 20}, {"MTA", "-_.", 50}, {"s.", "", 24},
		{"hooks.slack.com/", "/_-", 20}, {"vcp_", "", 24}, {"vci_", "", 24}, {"vca_", "", 24}, {"vcr_", "", 24}, {"vck_", "", 24},
	}
	for _, c := range "0123456789ABCDEF" {
		all = append(all, Form{"AP" + string(c), "", 10})
	}
	return all
}
