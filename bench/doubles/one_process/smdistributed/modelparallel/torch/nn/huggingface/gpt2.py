"""Imported and not called."""


def translate_hf_state_dict_to_smdistributed_gpt2(state_dict: object) -> object:
    return state_dict


translate_state_dict_to_hf_gpt2 = translate_hf_state_dict_to_smdistributed_gpt2
