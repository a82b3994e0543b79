"""Scores, thresholds, matched trials and the verdict: may this policy speak?"""
